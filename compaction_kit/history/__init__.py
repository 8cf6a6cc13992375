"""Looking back: what each version did, which can be read, what differs between two."""

from compaction_kit.history.ledger import read_history

__all__ = ["read_history"]

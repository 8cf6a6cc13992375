"""Read a table's transaction log, `_delta_log`."""

from compaction_kit.log.transaction_log import TransactionLog

__all__ = ["TransactionLog"]

"""What runs on executors. They need pyarrow and not this package: all in here is sent along by value.

So that nothing in here imports anything of the rest, and modules take single names from one another.
"""

from compaction_kit.execute.arrow.worker.checksums import checksum_path
from compaction_kit.execute.arrow.worker.shares import (
    GROUP_BYTES,
    WHOLE_BYTES,
    Rewritten,
    Share,
    join_parts,
    rewrite_shares,
)

__all__ = [
    "GROUP_BYTES",
    "WHOLE_BYTES",
    "Rewritten",
    "Share",
    "checksum_path",
    "join_parts",
    "rewrite_shares",
]

"""What runs on executors. They need pyarrow and not this package: its code is sent by value.

So no module in here imports anything of the rest, and modules import single names from one another.
"""

from compaction_kit.arrow.worker.content import Chunk, Content, read_content
from compaction_kit.arrow.worker.shares import (
    WHOLE_BYTES,
    Rewritten,
    Share,
    join_parts,
    rewrite_shares,
)

__all__ = [
    "WHOLE_BYTES",
    "Chunk",
    "Content",
    "Rewritten",
    "Share",
    "join_parts",
    "read_content",
    "rewrite_shares",
]

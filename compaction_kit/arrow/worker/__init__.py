"""What runs on executors. They need pyarrow and not this package: its code is sent by value.

No module in here imports anything of the rest but `arrow.concat`, and modules import single names from one
another.
"""

from compaction_kit.arrow.worker.content import Chunk, Content, read_content
from compaction_kit.arrow.worker.rewrite import (
    WHOLE_BYTES,
    RewriteOutput,
    RewriteTask,
    join_parts,
    rewrite_bins,
)

__all__ = [
    "WHOLE_BYTES",
    "Chunk",
    "Content",
    "RewriteOutput",
    "RewriteTask",
    "join_parts",
    "read_content",
    "rewrite_bins",
]

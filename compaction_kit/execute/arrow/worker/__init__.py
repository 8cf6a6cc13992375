"""What runs on executors. They need pyarrow and not this package: its code is sent by value.

So no module in here imports anything of the rest, and modules import single names from one another.
"""

from compaction_kit.execute.arrow.worker.files import Files
from compaction_kit.execute.arrow.worker.shares import (
    WHOLE_BYTES,
    Rewritten,
    Share,
    join_parts,
    rewrite_shares,
)

__all__ = ["WHOLE_BYTES", "Files", "Rewritten", "Share", "join_parts", "rewrite_shares"]

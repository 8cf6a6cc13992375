"""What runs on executors. They need pyarrow and not this package: its code is sent by value.

No module in here imports anything of the rest but `arrow.concat`, and modules import single names from one
another.
"""

from compaction_kit.arrow.worker.content import Content, read_content
from compaction_kit.arrow.worker.inputs import RewriteTask
from compaction_kit.arrow.worker.outputs import RewriteOutput
from compaction_kit.arrow.worker.rewrite import COPIED_SHARE, WHOLE_BYTES, rewrite_bins

__all__ = ["COPIED_SHARE", "WHOLE_BYTES", "Content", "RewriteOutput", "RewriteTask", "read_content"]
__all__ += ["rewrite_bins"]

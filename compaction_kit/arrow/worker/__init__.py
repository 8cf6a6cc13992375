"""The code that runs on executors. They need pyarrow but not this package: the code is sent by value.

Modules in here import only `arrow.concat` from the rest of the package, and single names from one another.
"""

from compaction_kit.arrow.worker.content import Content, read_content
from compaction_kit.arrow.worker.inputs import RewriteTask
from compaction_kit.arrow.worker.outputs import RewriteOutput
from compaction_kit.arrow.worker.rewrite import COPIED_SHARE, WHOLE_BYTES, rewrite_bins

__all__ = ["COPIED_SHARE", "WHOLE_BYTES", "Content", "RewriteOutput", "RewriteTask", "read_content"]
__all__ += ["rewrite_bins"]

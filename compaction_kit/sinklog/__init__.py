"""The logs of Spark's file sinks and file sources, and how they grow.

Most texts about them describe Spark 2.4. Spark 4.2 differs, as the tests of this package show:

- A sink's option `retention` (since 3.1) drops entries at compactions. A source has no retention.
- A compaction streams entries to the new file; readers, and a starting stream, hold all in the driver.
- "delete" entries count as existing files: neither readers nor compactions look at `action`.
- The cleanup runs after every batch, and removes compaction files too.
- `compactInterval` applies only while a log has at most one compaction file; with one, the interval is a
  divisor of its length. If it is decreased and a compaction is missing then, readers of a sink's output and
  the stream of a source fail at once, the stream of a sink at its next compaction; meanwhile the cleanup
  may remove batches that are in no compaction.
- Spark doesn't compare the log's checksums.
"""

from compaction_kit.sinklog.log import SinkLog, find_sink_logs, sink_log
from compaction_kit.sinklog.policy import Policy

__all__ = ["Policy", "SinkLog", "find_sink_logs", "sink_log"]

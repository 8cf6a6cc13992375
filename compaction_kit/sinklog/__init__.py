"""The logs of Spark's file sinks and file sources, and what can be done about their growth.

Most texts about them describe Spark 2.4. Spark 4.2 differs, as the tests of this package show:

- A sink has a retention (the option `retention`, since 3.1), which drops entries at compactions. A source has
  none.
- A compaction streams entries from the old files to the new one; readers, and a stream that starts with a
  source's log, hold all entries in the driver's memory.
- "delete" entries count as existing files: neither readers nor compactions look at `action`.
- The cleanup runs after every batch, and removes compaction files too.
- `compactInterval` has an effect only on a log with at most one compaction file; with one, the interval is a
  divisor of its length. If the setting is decreased on a log without a compaction, the stream fails at its
  next compaction; before that the cleanup may remove batches that are in no compaction.
- Spark doesn't compare the log's checksums: it doesn't notice if entries were cut off at the end of a line.
"""

from compaction_kit.sinklog.log import SinkLog, find_sink_logs, sink_log
from compaction_kit.sinklog.policy import Policy

__all__ = ["Policy", "SinkLog", "find_sink_logs", "sink_log"]

"""The logs of Spark's file sinks and file sources, and what can be done about their growth.

Much that is written about them is about Spark 2.4. Spark 4.2, as the tests of this package run it, differs in
this:

- A sink has a retention (the option `retention`, since 3.1), which drops entries at compactions. A source has
  none.
- A compaction streams entries from the old files to the new one; readers, and a stream that starts on a
  source's log, hold all of them in the driver's memory.
- "delete" entries are taken for files that are there: neither readers nor compactions look at `action`.
- The cleanup runs after every batch, not after compactions alone, and removes compaction files too.
- `compactInterval` counts only for a log with at most one compaction file, and then only as far as a divisor
  allows. Set shorter on a log that has none yet, it makes the stream fail at its next compaction; meanwhile
  the cleanup may have removed batches that are in no compaction.
- Nobody compares the log's checksums: entries cut off at a line's end are not missed.
"""

from compaction_kit.sinklog.log import SinkLog, sink_log
from compaction_kit.sinklog.policy import Policy
from compaction_kit.sinklog.state import find_sink_logs

__all__ = ["Policy", "SinkLog", "find_sink_logs", "sink_log"]

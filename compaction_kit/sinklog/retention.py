"""What the retention of a file sink will drop at the next compaction, and what it did drop."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.records import Record, Result
from compaction_kit.retention import parse_retention
from compaction_kit.sinklog.policy import file_name
from compaction_kit.sinklog.state import SinkLogState
from compaction_kit.text import format_size
from compaction_kit.times import millis, now, show_time, to_instant


@dataclass(frozen=True, repr=False)
class RetentionResult(Result):
    """What a compaction did under a retention.

    Attributes:
        batch: The compaction batch; None if it hasn't been written yet.
        dropped: The entries of the plan's log that are gone.
        kept: Those that are still there.
        as_planned: Whether the planned ones are gone, and no other that wasn't older than the retention when
            the compaction was written; None without the compaction.
    """

    batch: int | None
    dropped: pa.Table
    kept: pa.Table
    as_planned: bool | None

    def facts(self) -> dict[str, str]:
        """The outcome for people: name and value."""
        if self.batch is None:
            return {"outcome": "no compaction yet: run the stream with the plan's options until there is one"}
        return {
            "compaction": file_name(self.batch, is_compaction=True),
            "dropped": f"{len(self.dropped):,} of {len(self.dropped) + len(self.kept):,} entries, "
            + ("as planned" if self.as_planned else "NOT as planned"),
        }


@dataclass(frozen=True, repr=False)
class RetentionPlan(Record):
    """What the sink's option `retention` drops at the next compaction; Spark's stream runs it.

    At each compaction the entries of files that were written longer ago are left out, by the time in the
    entry (FileStreamSinkLog.shouldRetain, since Spark 3.1). Until then readers see them, as the option is the
    stream's; afterwards their rows are gone for every reader that goes by the log, while the files stay on
    disk, where nothing deletes them.

    Attributes:
        log: The log that it is for.
        retention: How old an entry may become.
        at: When the compaction is assumed to be.
        batch: The compaction batch.
        dropped: The entries that will go, as in `SinkLog.entries`.
        kept: Those that stay.
    """

    log: SinkLogState = field(repr=False)
    retention: timedelta
    at: datetime
    batch: int
    dropped: pa.Table
    kept: pa.Table

    @property
    def options(self) -> dict[str, str]:
        """The options to start the stream with: `writeStream.options(**plan.options)`."""
        return {"retention": f"{self.retention // timedelta(milliseconds=1)}ms"}

    @property
    def dropped_bytes(self) -> int:
        """Bytes of the data files that no reader of the log will see any more."""
        return pc.sum(self.dropped["size_bytes"]).as_py() or 0

    def result(self) -> RetentionResult:
        """Compare with the log as it is now; call it once the stream has written the compaction.

        Raises:
            CorruptLogError: The log can't be read any more.
        """
        log, entries = SinkLogState.read(self.log.folder, self.log.session, self.log.policy), self.log.entries
        done = [file for file in log.listed if file.is_compaction and file.batch >= self.batch]
        if not done:
            return RetentionResult(None, entries.slice(0, 0), entries, None)
        there = pc.is_in(entries["path"], value_set=log.entries["path"].combine_chunks())
        dropped = entries.filter(pc.invert(there))
        # A compaction later than the plan's time drops more.
        may_go = entries.filter(_is_old(entries, self.retention, done[-1].modification_time))
        planned, gone, may = (set(part["path"].to_pylist()) for part in (self.dropped, dropped, may_go))
        return RetentionResult(done[-1].batch, dropped, entries.filter(there), planned <= gone <= may)

    def explain(self) -> str:
        """What would go and what it costs, in sentences."""
        if not len(self.dropped):
            return f"The compaction at batch {self.batch:,} would drop no entry: none is that old."
        return (
            f"The compaction at batch {self.batch:,} would drop {len(self.dropped):,} of "
            f"{self.log.num_entries:,} entries, if it is on {show_time(self.at)}. The rows of their "
            f"files ({format_size(self.dropped_bytes)}) are lost to readers of the output; the files stay "
            "on disk, and nothing deletes them."
        )

    def facts(self) -> dict[str, str]:
        """The plan for people: name and value."""
        return {
            "next compaction": f"batch {self.batch:,}",
            "drops": f"{len(self.dropped):,} of {self.log.num_entries:,} entries, "
            f"{format_size(self.dropped_bytes)} of data",
            "keeps": f"{len(self.kept):,}",
            "option": f'retention = "{self.options["retention"]}"',
        }


def plan_retention(log: SinkLogState, retention: str, at: datetime | str | None = None) -> RetentionPlan:
    """Plan what the sink's option `retention` would drop at the next compaction; see `RetentionPlan`.

    Args:
        log: The sink's log.
        retention: How old an entry may become: "7 days".
        at: When that compaction is; None for now. Without a zone it is in the session's.

    Raises:
        InvalidArgumentError: It is no length of time, or the log is a source's.
    """
    log.check_sink(f'retention="{retention}"')
    length = parse_retention(retention)
    moment = now(log.session) if at is None else to_instant(at, "at", log.session)
    old = _is_old(log.entries, length, millis(moment))
    dropped, kept = log.entries.filter(old), log.entries.filter(pc.invert(old))
    return RetentionPlan(log, length, moment, log.next_compaction_batch, dropped, kept)


def _is_old(entries: pa.Table, retention: timedelta, at: int) -> pa.ChunkedArray:
    """Which entries a compaction at a time (in ms since 1970) drops."""
    return pc.less(entries["modification_time"].cast(pa.int64()), at - retention // timedelta(milliseconds=1))

"""The entries that a file sink's retention will drop at the next compaction, and those it has dropped."""

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
        dropped: The entries of the plan's log that were dropped.
        kept: The entries that were kept.
        as_planned: Whether the planned entries were dropped, and others only if they were older than the
            retention when the compaction was written; None without the compaction.
    """

    batch: int | None
    dropped: pa.Table
    kept: pa.Table
    as_planned: bool | None

    def facts(self) -> dict[str, str]:
        """Return the outcome for people: name and value."""
        if self.batch is None:
            return {"outcome": "no compaction yet: run the stream with the plan's options until there is one"}
        return {
            "compaction": file_name(self.batch, is_compaction=True),
            "dropped": f"{len(self.dropped):,} of {len(self.dropped) + len(self.kept):,} entries, "
            + ("as planned" if self.as_planned else "NOT as planned"),
        }


@dataclass(frozen=True, repr=False)
class RetentionPlan(Record):
    """The entries that the sink's option `retention` drops at the next compaction, which the stream writes.

    Each compaction drops the entries that are older than the retention, by the modification time in the entry
    (FileStreamSinkLog.shouldRetain, since Spark 3.1). Until then readers see them; afterwards every reader
    that uses the log misses their rows. The files are not deleted.

    Attributes:
        log: The sink's log.
        retention: The maximum age of an entry.
        at: The assumed time of the compaction.
        batch: The compaction batch.
        dropped: The entries to drop, as in `SinkLog.entries`.
        kept: The entries to keep.
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
        """The bytes of the data files whose entries are dropped."""
        return pc.sum(self.dropped["size_bytes"]).as_py() or 0

    def result(self) -> RetentionResult:
        """Compare the plan with the log now; call this after the stream has written the compaction.

        Raises:
            CorruptLogError: The log can no longer be read.
        """
        log, entries = SinkLogState.read(self.log.folder, self.log.session, self.log.policy), self.log.entries
        done = [file for file in log.listed if file.is_compaction and file.batch >= self.batch]
        if not done:
            return RetentionResult(None, entries.slice(0, 0), entries, None)
        is_kept = pc.is_in(entries["path"], value_set=log.entries["path"].combine_chunks())
        dropped = entries.filter(pc.invert(is_kept))
        # A compaction later than planned drops more entries.
        may_go = entries.filter(_is_old(entries, self.retention, done[-1].modification_time))
        planned, actual, allowed = (set(part["path"].to_pylist()) for part in (self.dropped, dropped, may_go))
        return RetentionResult(done[-1].batch, dropped, entries.filter(is_kept), planned <= actual <= allowed)

    def explain(self) -> str:
        """Explain which entries would be dropped and what that means, in sentences."""
        if not len(self.dropped):
            return f"The compaction at batch {self.batch:,} would drop no entry: none is that old."
        return (
            f"The compaction at batch {self.batch:,} would drop {len(self.dropped):,} of "
            f"{self.log.num_entries:,} entries, if it is written on {show_time(self.at)}. Readers of the "
            f"output then miss the rows of their files ({format_size(self.dropped_bytes)}), but no file is "
            "deleted."
        )

    def facts(self) -> dict[str, str]:
        """Return the plan for people: name and value."""
        return {
            "next compaction": f"batch {self.batch:,}",
            "drops": f"{len(self.dropped):,} of {self.log.num_entries:,} entries, "
            f"{format_size(self.dropped_bytes)} of data",
            "keeps": f"{len(self.kept):,}",
            "option": f'retention = "{self.options["retention"]}"',
        }


def plan_retention(log: SinkLogState, retention: str, at: datetime | str | None = None) -> RetentionPlan:
    """Plan the sink's option `retention`; see `RetentionPlan`, and `sink_log` for an example.

    Args:
        log: The sink's log.
        retention: The maximum age of an entry, such as "7 days".
        at: The time of the next compaction; None for now. Without a zone it is in the session's time zone.

    Raises:
        InvalidArgumentError: `retention` is not a length of time, or the log is a source's.
    """
    log.check_sink(f'retention="{retention}"')
    length = parse_retention(retention)
    moment = now(log.session) if at is None else to_instant(at, "at", log.session)
    old = _is_old(log.entries, length, millis(moment))
    dropped, kept = log.entries.filter(old), log.entries.filter(pc.invert(old))
    return RetentionPlan(log, length, moment, log.next_compaction_batch, dropped, kept)


def _is_old(entries: pa.Table, retention: timedelta, at: int) -> pa.ChunkedArray:
    """Return which entries a compaction at a time (ms since 1970) drops (bool)."""
    return pc.less(entries["modification_time"].cast(pa.int64()), at - retention // timedelta(milliseconds=1))

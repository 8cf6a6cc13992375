"""What the retention of a file sink would drop, and what it did drop."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.retention import parse_retention
from compaction_kit.streaming.names import Kind, file_name, list_files
from compaction_kit.text import as_text, format_size, shown
from compaction_kit.times import earlier, now, show_time, to_instant

if TYPE_CHECKING:
    from compaction_kit.streaming.record import SinkLog

_TIME = pa.timestamp("ms", "UTC")


@dataclass(frozen=True)
class RetentionResult:
    """What a compaction did under a retention.

    Attributes:
        batch: The compaction batch; None if it hasn't been written yet.
        dropped: The entries of the plan's log that are gone.
        kept: Those that are still there.
        as_planned: Whether the planned ones are gone, and no other that wasn't older than the
            retention when the compaction was written; None without the compaction.
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

    def _repr_html_(self) -> str:
        return shown(self.facts())

    def __repr__(self) -> str:
        return as_text(self.facts())


@dataclass(frozen=True)
class RetentionPlan:
    """What the sink's option `retention` drops at the next compaction; Spark's stream runs it.

    At each compaction the entries of files that were written longer ago are left out, by the
    time in the entry (FileStreamSinkLog.shouldRetain, since Spark 3.1). Until then readers see
    them, as the option is the stream's; afterwards their rows are gone for every reader that
    goes by the log, while the files stay on disk, where nothing deletes them.

    Attributes:
        log: The log that it is for.
        retention: How old an entry may become.
        at: When the compaction is taken to be.
        batch: The compaction batch.
        dropped: The entries that will go, as in `SinkLog.entries`.
        kept: Those that stay.
    """

    log: "SinkLog"
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
        """What the compaction dropped, by the log as it is now; ask once the stream has written it.

        Raises:
            CorruptLogError: The log can't be read any more.
        """
        from compaction_kit.streaming.record import sink_log

        files = list_files(self.log.folder)
        done = [file for file in files if file.is_compaction and file.batch >= self.batch]
        if not done:
            empty = self.log.entries.slice(0, 0)
            return RetentionResult(None, empty, self.log.entries, None)
        now = sink_log(self.log.folder, self.log.session, self.log.policy)
        there = pc.is_in(self.log.entries["path"], value_set=now.entries["path"].combine_chunks())
        dropped = self.log.entries.filter(pc.invert(there))
        # A compaction later than the plan's time drops more.
        may_go = self.log.entries.filter(
            _old(self.log.entries, self.retention, _utc(done[-1].modification_time))
        )
        planned, gone, may = (set(part["path"].to_pylist()) for part in (self.dropped, dropped, may_go))
        as_planned = planned <= gone <= may
        return RetentionResult(done[-1].batch, dropped, self.log.entries.filter(there), as_planned)

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

    def _repr_html_(self) -> str:
        return shown(self.facts())

    def __repr__(self) -> str:
        return f"RetentionPlan(batch {self.batch}: {len(self.dropped):,} of {self.log.num_entries:,} entries)"


def plan_retention(log: "SinkLog", retention: str, at: datetime | str | None) -> RetentionPlan:
    """See `SinkLog.plan_retention`."""
    if log.kind == Kind.SOURCE:
        raise InvalidArgumentError(
            f'retention="{retention}" is for sinks: Spark keeps every entry of a source\'s log.'
        )
    length = parse_retention(retention)
    moment = now(log.session) if at is None else to_instant(at, "at", log.session)
    old = _old(log.entries, length, moment)
    dropped, kept = log.entries.filter(old), log.entries.filter(pc.invert(old))
    return RetentionPlan(log, length, moment, log.next_compaction_batch, dropped, kept)


def _old(entries: pa.Table, retention: timedelta, at: datetime) -> pa.ChunkedArray:
    """Which entries a compaction at a time drops."""
    return pc.less(entries["modification_time"], pa.scalar(earlier(at, retention), _TIME))


def _utc(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)

"""A log in words: its finding, its facts, and what to beware of."""

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from compaction_kit.streaming.growth import Projection
from compaction_kit.streaming.names import Kind
from compaction_kit.streaming.policy import setting
from compaction_kit.text import format_count, format_seconds, format_size

if TYPE_CHECKING:
    from compaction_kit.streaming.record import SinkLog

_AHEAD = 100


def finding(log: "SinkLog", projection: Projection) -> str:
    """What the compaction file is and will be, in a sentence without its full stop."""
    now = [file for file in log.needed if file.is_compaction]
    begin = f"{now[0].name} is {format_size(now[0].size_bytes)}" if now else "No compaction yet"
    if projection.fails_at is not None:
        return f"{begin}; a stream fails at batch {projection.fails_at:,}: {projection.missing} isn't there"
    if not len(projection.compactions):
        return begin
    last = projection.compactions.slice(len(projection.compactions) - 1).to_pylist()[0]
    ending = f"at batch {last['batch']:,} it will be about {format_size(last['size_bytes'])}"
    if projection.memory is not None and projection.driver_bytes is not None:
        ending += f", and take {format_size(projection.driver_bytes)} of the driver's heap"
    return f"{begin}; {ending}"


def facts(log: "SinkLog") -> dict[str, str]:
    """The log for people: name and value."""
    needed = f"{log.needed[0].name} to {log.needed[-1].name}" if len(log.needed) > 1 else log.needed[0].name
    return {
        "log": f"of a file {log.kind}, {log.folder}",
        "batches": f"up to {log.latest_batch:,}; every {log.compact_interval} there is a compaction, the "
        f"next at {log.next_compaction_batch:,}",
        "entries": f"{log.num_entries:,}, of {log.pace.entry_bytes:,.0f} B; "
        f"{log.pace.entries_per_batch:,.1f} a batch",
        "a reader reads": f"{needed}, {format_size(log.size_bytes)}",
        "on disk": f"{format_count(len(log.listed), 'file')}, "
        f"{format_size(sum(file.size_bytes for file in log.listed))}",
        "cleanup": _cleanup(log),
    }


def explain(log: "SinkLog") -> str:
    """What the log is, what becomes of it, and what to beware of, in sentences."""
    projection = log.project(_AHEAD)
    lines = [
        f"{log!r}: {finding(log, projection)}.",
        _interval(log),
        f"Cleanup: {_cleanup(log)}.",
    ]
    if projection.fails_at is None:
        lines.append(_growth(log, projection))
    if log.unreadable is not None:
        lines.append(
            f"Spark, set like this, can't read the log: it looks for {log.unreadable}, which isn't there. "
            f"{_set_longer(log)}"
        )
    if projection.fails_at is not None:
        lost = projection.removals.num_rows
        before = f", after the cleanup has removed {format_count(lost, 'file')} that it needs" if lost else ""
        lines.append(
            f"A stream with these settings fails at batch {projection.fails_at:,}{before}: its compaction "
            f"reads {projection.missing}, which isn't there. {_set_longer(log)}"
        )
    if log.kind == Kind.SINK:
        num_deletes = pc.sum(pc.not_equal(log.entries["action"], "add")).as_py() or 0
        if num_deletes:
            verb = "entry isn't" if num_deletes == 1 else "entries aren't"
            lines.append(
                f'{num_deletes:,} {verb} "add": Spark before 3.1 left such files out, today\'s reads them.'
            )
    return "\n".join(lines)


def _interval(log: "SinkLog") -> str:
    compactions = [file for file in log.listed if file.is_compaction]
    default, interval = log.policy.default_interval, log.compact_interval
    key = setting(log.kind, "compactInterval")
    if len(compactions) >= 2:
        names = " and ".join(file.name for file in compactions[-2:])
        ignored = f"; {key}={default} has no effect while both are there" if default != interval else ""
        return f"Interval: {interval}, the distance of {names}{ignored}."
    if compactions:
        return f"Interval: {interval}, which fits {compactions[0].name} and {key}={default}."
    return f"Interval: {interval}, by {key}, as there is no compaction yet."


def _cleanup(log: "SinkLog") -> str:
    if not log.policy.deletion:
        return f"off, by {setting(log.kind, 'deletion')}: no file is ever removed"
    going = log.files.filter(log.files["removed_after"].is_valid())
    delay = format_seconds(log.policy.cleanup_delay.total_seconds())
    kept = f"{log.policy.min_batches_to_retain} batches are kept, and files younger than {delay}"
    if not len(going):
        return f"nothing goes soon; {kept}"
    first = pc.min(going["removed_after"]).as_py()
    num_first = pc.sum(pc.equal(going["removed_after"], first)).as_py()
    return f"after batch {first:,}, {format_count(num_first, 'file')} will go; {kept}"


def _growth(log: "SinkLog", projection: Projection) -> str:
    if log.kind == Kind.SOURCE:
        return (
            "Growth: every file that the stream ever read stays listed; Spark has no retention for sources."
        )
    last = log.latest_batch + len(projection.batches)
    live = projection.batches["num_live"][-1].as_py()
    return (
        f"Growth: {log.num_entries:,} entries now, about {live:,} at batch {last:,}; each compaction writes "
        "all of them again, and each reader takes all of them into its driver's memory. plan_retention() and "
        "plan_move() show what can be done."
    )


def _set_longer(log: "SinkLog") -> str:
    key = setting(log.kind, "compactInterval")
    return f"Set {key} to more than {log.latest_batch + 1:,}, or as it was before."

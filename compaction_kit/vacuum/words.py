"""A vacuum in a few sentences: what it costs first, then what it frees."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from compaction_kit.text import format_count, format_size
from compaction_kit.times import show_time
from compaction_kit.vacuum.sorting import LITE, NEEDED
from compaction_kit.vacuum.window import hours

if TYPE_CHECKING:
    from compaction_kit.vacuum.plan import VacuumPlan

_REASONS = {
    "tombstone": "that versions needed",
    "change data": "of the change data feed",
    "orphan": "that no version knows of",
}
_MOST_NAMED = 5


def explain(plan: "VacuumPlan") -> str:
    """What a plan costs, what would go and what stays, a sentence a line."""
    day = show_time(plan.at)
    kept = f"files removed less than {hours(plan.retention)} hours before are kept"
    if plan.is_empty:
        lines = [f"VACUUM on {day} would delete nothing: {kept}."]
    else:
        lines = [" ".join([cost(plan.versions_lost), *_survivors(plan)]), *_blocked(plan)]
        lines += [_deletion(plan, day, kept), *_folders(plan)]
        lines.append(
            f"What began more than {hours(plan.retention)} hours before and still runs, a query or a write, "
            "may need these files."
        )
    return "\n".join([*lines, *_promises(plan), *_lite(plan), *plan.warnings])


def finding(plan: "VacuumPlan") -> str:
    """What a plan costs and frees, as a title."""
    if plan.is_empty:
        return "VACUUM would delete nothing"
    now = pc.sum(pc.equal(plan.versions["readable"], "yes")).as_py()
    spent = spent_versions(plan.versions_lost, plan.content_survives_as, now)
    return f"VACUUM would cost {spent} and free {format_size(plan.size_bytes)}"


def spent_versions(lost: Sequence[int], survives_as: Collection[int], now: int) -> str:
    """How many of the versions readable before are lost, and how much of their content isn't.

    Args:
        lost: The versions lost.
        survives_as: Those of them whose content can be read under another number.
        now: How many versions could be read before.
    """
    readable = format_count(now, "readable version")
    if not lost:
        return f"none of {readable}"
    whose = "its content" if len(lost) == 1 else "their content"
    if len(survives_as) < len(lost):
        whose = f"the content of {len(survives_as):,}"
    return f"{len(lost):,} of {readable}{f', not {whose},' if survives_as else ''}"


def cost(lost: Sequence[int]) -> str:
    """Which versions would be lost."""
    if not lost:
        return "No version that can be read now would be lost."
    return f"{format_count(len(lost), 'version')} that can be read now would be lost: {ranges(lost)}."


def ranges(versions: Sequence[int]) -> str:
    """Versions for people: "0 to 3, 7"; the first of many ranges."""
    array = np.array(versions)
    runs = np.split(array, np.flatnonzero(np.diff(array) != 1) + 1)
    shown = [f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs[:_MOST_NAMED]]
    more = sum(map(len, runs[_MOST_NAMED:]))
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _blocked(plan: "VacuumPlan") -> list[str]:
    lost = plan.blocked_versions_lost
    if not lost:
        return []
    which = f"{format_count(len(lost), 'version')} that Delta's guard refuses already"
    return [f"{which}, as it does what is older than the retention, would lose files: {ranges(lost)}."]


def _survivors(plan: "VacuumPlan") -> list[str]:
    known, claimed = plan.content_survives_as, plan.content_claimed_as
    spares = [f"{lost} as {other} ({plan.content_survives_by[lost]})" for lost, other in known.items()]
    claims = [f"{lost} as {other}" for lost, other in claimed.items()]
    lines = []
    if spares:
        lines.append(f"The same content can still be read under another number: {first(spares)}.")
    if claims:
        lost, other = next(iter(claimed.items()))
        lines.append(
            f"Its writer claims the same content under another number: {first(claims)}; nothing proves it, "
            f"so compare them first: diff({lost}, {other}, verify=True) does."
        )
    return lines


def first(words: Sequence[str]) -> str:
    """Words in a row; the first of many."""
    more = len(words) - _MOST_NAMED
    return ", ".join(words[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _deletion(plan: "VacuumPlan", day: str, kept: str) -> str:
    reasons = plan.files["reason"].to_pylist()
    parts = [f"{reasons.count(reason):,} {words}" for reason, words in _REASONS.items() if reason in reasons]
    which = f": {', '.join(parts)}" if parts else ""
    files = f"{format_count(plan.num_files, 'file')} ({format_size(plan.size_bytes)})"
    return f"VACUUM on {day} would delete {files}{which}; {kept}."


def _folders(plan: "VacuumPlan") -> list[str]:
    number = len(plan.empty_directories)
    sentences = [f"{format_count(number, 'empty folder')} would go too."] if number else []
    if pc.any(pc.match_substring(plan.files["path"], "/")).as_py():
        sentences.append("Folders that are emptied now stay until the next VACUUM.")
    return [" ".join(sentences)] if sentences else []


def _promises(plan: "VacuumPlan") -> list[str]:
    lines = _kept_versions(plan) if plan.keep_versions else []
    if plan.retention > plan.table_retention:
        lines.append(
            f"Delta since 4.1 ignores RETAIN and would keep removed files for {hours(plan.table_retention)} "
            f"hours, as the table's property says; run() keeps them for {hours(plan.retention)}."
        )
    return lines


def _kept_versions(plan: "VacuumPlan") -> list[str]:
    one = len(plan.keep_versions) == 1
    whole = f"Version{'' if one else 's'} {ranges(plan.keep_versions)} stay{'s' if one else ''} whole"
    rows = [row for row in plan.kept.to_pylist() if row["reason"] == NEEDED]
    if not rows:
        return [f"{whole}, for which no file more than otherwise is kept."]
    number, size = rows[0]["num_files"], format_size(rows[0]["size_bytes"])
    verb = "is" if number == 1 else "are"
    return [
        f"{whole}, for which {format_count(number, 'file')} ({size}) more than otherwise {verb} kept; a "
        "plain VACUUM would take them. Their commits stay as long as the log's retention says."
    ]


def _lite(plan: "VacuumPlan") -> list[str]:
    if plan.mode != LITE:
        return []
    gone = len(plan.gone_already)
    listed = f"; {format_count(gone, 'file')} that it lists {'is' if gone == 1 else 'are'} gone already"
    return [f"LITE looks at the log's commits alone: orphans stay{listed if gone else ''}."]

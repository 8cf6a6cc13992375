"""A vacuum as planned: what it would delete, what that costs, and why, in a few sentences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow.compute as pc
from matplotlib.figure import Figure

from compaction_kit import plots
from compaction_kit.handle import Handle
from compaction_kit.history.readable import YES
from compaction_kit.records import Plan
from compaction_kit.retention import hours
from compaction_kit.text import as_html_table, format_count, format_list, format_size
from compaction_kit.times import show_time
from compaction_kit.vacuum.cost import Preview, ranges, spent_versions, with_cost
from compaction_kit.vacuum.decide import FULL, LITE, NEEDED, decide
from compaction_kit.vacuum.result import VacuumResult
from compaction_kit.vacuum.run import run_vacuum

_REASONS = {
    "tombstone": "that versions needed",
    "change data": "of the change data feed",
    "orphan": "that no version knows of",
}


@dataclass(frozen=True, repr=False)
class VacuumPlan(Preview, Plan):
    """What VACUUM would delete at a time, and what that costs; only `run()` deletes.

    What goes, what stays and why is in `files`, `directories`, `kept`, `storage` and `gone_already`; see
    `decide.Deletion` for their columns. What it costs is in `versions`, `versions_lost`,
    `blocked_versions_lost`, `content_survives_as`, `content_survives_by`, `content_claimed_as` and
    `warnings`; see `cost.Preview`.
    """

    def run(
        self, parallel_delete: bool | None = None, progress: bool | Callable[[Any], None] | None = None
    ) -> VacuumResult:
        """Delete what the plan shows, by Delta's VACUUM USING INVENTORY, and nothing else.

        Delta checks each file once more by the log as it is then. No setting of the session is
        weakened: with the retention check on, nothing younger than the table's retention goes.

        Args:
            parallel_delete: Whether Spark's tasks delete, or the driver, one file at a time. None: as the
                session is set (spark.databricks.delta.vacuum.parallelDelete.enabled; the driver,
                if it isn't).
            progress: True for a bar, or a callable that takes a `VacuumProgress` now and then; an
                exception that it raises cancels the run.

        Returns:
            What went, what did not, and which versions that cost.

        Raises:
            InvalidArgumentError: The plan is for a time that is yet to come, or an argument can't be used.
            StalePlanError: The table, or a file of the plan, has changed since.
            SessionError: The session has no JVM in reach.
            ReadOnlyTableError: The table's log can't be written to.
            RunFailedError: Spark or Delta gave up; the message says what is gone.
            RunCancelled: It was cancelled; the message says the same.
        """
        return run_vacuum(self, parallel_delete, progress)

    def explain(self) -> str:
        """What it costs, what would go and what stays, a sentence a line."""
        day, kept_hours = show_time(self.at), hours(self.retention)
        kept = f"files removed less than {kept_hours} hours before are kept"
        if self.is_empty:
            lines = [f"VACUUM on {day} would delete nothing: {kept}."]
        else:
            lines = [
                *self._costs(),
                f"VACUUM on {day} would delete {self._deleted()}; {kept}.",
                self._folders(),
            ]
            lines.append(
                f"What began more than {kept_hours} hours before and still runs, a query or a write, may "
                "need these files."
            )
        if self.keep_versions:
            lines.append(self._kept_versions())
        if self.retention > self.table_retention:
            lines.append(
                "Delta since 4.1 ignores RETAIN and would keep removed files for "
                f"{hours(self.table_retention)} hours, as the table's property says; run() keeps them for "
                f"{kept_hours}."
            )
        if self.mode == LITE:
            gone, is_are = len(self.gone_already), "is" if len(self.gone_already) == 1 else "are"
            listed = f"; {format_count(gone, 'file')} that it lists {is_are} gone already" if gone else ""
            lines.append(f"LITE looks at the log's commits alone: orphans stay{listed}.")
        return "\n".join(line for line in (*lines, *self.warnings) if line)

    def facts(self) -> dict[str, str]:
        """The plan for people: name and value."""
        lost = self.versions_lost
        return {
            "vacuum": f"{self.mode}, of version {self.version}, on {show_time(self.at)}",
            "versions lost": f"{len(lost):,}: {ranges(lost)}" if lost else "none",
            "deletes": f"{format_count(self.num_files, 'file')}, {format_size(self.size_bytes)}",
            "keeps": f"files removed less than {hours(self.retention)} hours before",
        }

    def parts(self) -> tuple[object, ...]:
        """The sentences, what stays, and the figure."""
        kept = [
            (row["reason"], f"{row['num_files']:,}", format_size(row["size_bytes"]))
            for row in self.kept.to_pylist()
        ]
        stays = [as_html_table(("what stays", "files", "bytes"), kept)] if kept else []
        return self.explain(), *stays, self.plot()

    def plot(self) -> Figure:
        """Draw the storage now and after, and which versions can be read now and after."""
        now = self.versions["readable"].to_pylist().count(YES)
        spent = spent_versions(self.versions_lost, self.content_survives_as, now)
        title = f"VACUUM would cost {spent} and free {format_size(self.size_bytes)}"
        return plots.vacuum(
            self.storage, self.versions, "VACUUM would delete nothing" if self.is_empty else title
        )

    def _costs(self) -> list[str]:
        lost, blocked = self.versions_lost, self.blocked_versions_lost
        known, claimed = self.content_survives_as, self.content_claimed_as
        sentences = ["No version that can be read now would be lost."]
        if lost:
            number = format_count(len(lost), "version")
            sentences = [f"{number} that can be read now would be lost: {ranges(lost)}."]
        if known:
            spares = [f"{one} as {other} ({self.content_survives_by[one]})" for one, other in known.items()]
            sentences.append(
                f"The same content can still be read under another number: {format_list(spares)}."
            )
        if claimed:
            claims = [f"{one} as {other}" for one, other in claimed.items()]
            one, other = next(iter(claimed.items()))
            sentences.append(
                f"Its writer claims the same content under another number: {format_list(claims)}; nothing "
                f"proves it, so compare them first: diff({one}, {other}, verify=True) does."
            )
        lines = [" ".join(sentences)]
        if blocked:
            number = format_count(len(blocked), "version")
            lines.append(
                f"{number} that Delta's guard refuses already, as it does what is older than the retention, "
                f"would lose files: {ranges(blocked)}."
            )
        return lines

    def _deleted(self) -> str:
        reasons = self.files["reason"].to_pylist()
        known = [reason for reason in _REASONS if reason in reasons]
        counts = [f"{reasons.count(reason):,} {_REASONS[reason]}" for reason in known]
        files = f"{format_count(self.num_files, 'file')} ({format_size(self.size_bytes)})"
        return f"{files}: {', '.join(counts)}" if counts else files

    def _folders(self) -> str:
        number, has_folders = len(self.empty_directories), pc.match_substring(self.files["path"], "/")
        empty = f"{format_count(number, 'empty folder')} would go too." if number else ""
        later = "Folders that are emptied now stay until the next VACUUM."
        return f"{empty} {later if pc.any(has_folders).as_py() else ''}".strip()

    def _kept_versions(self) -> str:
        one = len(self.keep_versions) == 1
        whole = f"Version{'' if one else 's'} {ranges(self.keep_versions)} stay{'s' if one else ''} whole"
        kept = next((row for row in self.kept.to_pylist() if row["reason"] == NEEDED), None)
        if kept is None:
            return f"{whole}, for which no file more than otherwise is kept."
        files = f"{format_count(kept['num_files'], 'file')} ({format_size(kept['size_bytes'])})"
        is_are = "is" if kept["num_files"] == 1 else "are"
        return (
            f"{whole}, for which {files} more than otherwise {is_are} kept; a plain VACUUM would take them. "
            "Their commits stay as long as the log's retention says."
        )


def plan_vacuum(
    handle: Handle,
    retention: str | None = None,
    keep_versions: Sequence[int] | None = None,
    mode: str = FULL,
    at: datetime | str | None = None,
    verify: bool = False,
) -> VacuumPlan:
    """Preview VACUUM by the log, the folder and the clock, as VacuumCommand.gc decides.

    FULL takes each file that no live file and no tombstone younger than the retention names, and
    that was itself written before that. Hidden files and folders stay. LITE takes the same of the
    files that commits have removed, and looks at no others. See `Table.plan_vacuum` for the arguments
    and errors.
    """
    deletion, state = decide(handle, retention, keep_versions, mode, handle.instant(at))
    return VacuumPlan(**vars(with_cost(deletion, state, verify)))

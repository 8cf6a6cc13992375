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
            lines = [" ".join(self._lost()), *self._blocked()]
            lines += [f"VACUUM on {day} would delete {self._deleted()}; {kept}.", *self._folders()]
            lines.append(
                f"What began more than {kept_hours} hours before and still runs, a query or a write, may "
                "need these files."
            )
        return "\n".join([*lines, *self._promises(), *self._lite(), *self.warnings])

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

    def _lost(self) -> list[str]:
        lost, known, claimed = self.versions_lost, self.content_survives_as, self.content_claimed_as
        if not lost:
            return ["No version that can be read now would be lost."]
        lines = [f"{format_count(len(lost), 'version')} that can be read now would be lost: {ranges(lost)}."]
        if known:
            spares = [f"{one} as {other} ({self.content_survives_by[one]})" for one, other in known.items()]
            lines.append(f"The same content can still be read under another number: {format_list(spares)}.")
        if claimed:
            claims = [f"{one} as {other}" for one, other in claimed.items()]
            one, other = next(iter(claimed.items()))
            lines.append(
                f"Its writer claims the same content under another number: {format_list(claims)}; nothing "
                f"proves it, so compare them first: diff({one}, {other}, verify=True) does."
            )
        return lines

    def _blocked(self) -> list[str]:
        lost = self.blocked_versions_lost
        if not lost:
            return []
        which = f"{format_count(len(lost), 'version')} that Delta's guard refuses already"
        return [f"{which}, as it does what is older than the retention, would lose files: {ranges(lost)}."]

    def _deleted(self) -> str:
        reasons = self.files["reason"].to_pylist()
        counts = [
            f"{reasons.count(reason):,} {words}" for reason, words in _REASONS.items() if reason in reasons
        ]
        files = f"{format_count(self.num_files, 'file')} ({format_size(self.size_bytes)})"
        return f"{files}: {', '.join(counts)}" if counts else files

    def _folders(self) -> list[str]:
        number = len(self.empty_directories)
        sentences = [f"{format_count(number, 'empty folder')} would go too."] if number else []
        if pc.any(pc.match_substring(self.files["path"], "/")).as_py():
            sentences.append("Folders that are emptied now stay until the next VACUUM.")
        return [" ".join(sentences)] if sentences else []

    def _promises(self) -> list[str]:
        lines = []
        if self.keep_versions:
            one = len(self.keep_versions) == 1
            whole = f"Version{'' if one else 's'} {ranges(self.keep_versions)} stay{'s' if one else ''} whole"
            row = next((row for row in self.kept.to_pylist() if row["reason"] == NEEDED), None)
            if row is None:
                lines.append(f"{whole}, for which no file more than otherwise is kept.")
            else:
                files = f"{format_count(row['num_files'], 'file')} ({format_size(row['size_bytes'])})"
                are = "is" if row["num_files"] == 1 else "are"
                lines.append(
                    f"{whole}, for which {files} more than otherwise {are} kept; a plain VACUUM would take "
                    "them. Their commits stay as long as the log's retention says."
                )
        if self.retention > self.table_retention:
            lines.append(
                "Delta since 4.1 ignores RETAIN and would keep removed files for "
                f"{hours(self.table_retention)} hours, as the table's property says; run() keeps them for "
                f"{hours(self.retention)}."
            )
        return lines

    def _lite(self) -> list[str]:
        if self.mode != LITE:
            return []
        gone = len(self.gone_already)
        listed = f"; {format_count(gone, 'file')} that it lists {'is' if gone == 1 else 'are'} gone already"
        return [f"LITE looks at the log's commits alone: orphans stay{listed if gone else ''}."]


def plan_vacuum(
    handle: Handle,
    retention: str | None = None,
    keep_versions: Sequence[int] | None = None,
    mode: str = FULL,
    at: datetime | str | None = None,
    verify: bool = False,
) -> VacuumPlan:
    """Preview VACUUM: by the log, the folder and the clock, as VacuumCommand.gc decides.

    FULL takes each file that no live file and no tombstone younger than the retention names, and
    that was itself written before that. Hidden files and folders stay. LITE takes the same of the
    files that commits have removed, and looks at no others.

    Args:
        handle: The table.
        retention: How long removed files are kept: "168 hours", "7 days". None: the table's
            property delta.deletedFileRetentionDuration, or a week. A longer one keeps more, though
            Delta itself has ignored RETAIN since 4.1: the plan is run file by file.
        keep_versions: Versions of which no file may go.
        mode: "FULL" or "LITE".
        at: When VACUUM would run; None for now. Without a zone it is in the session's.
        verify: Read what versions differ in before calling the content of one that is lost the
            same as another's.

    Raises:
        InvalidArgumentError: The retention can't be read, or Delta refuses it; a version to keep
            can't be read already; the mode is unknown, or Delta refuses LITE, for commits are gone.
    """
    deletion, state = decide(handle, retention, keep_versions, mode, handle.instant(at))
    return VacuumPlan(**vars(with_cost(deletion, state, verify)))

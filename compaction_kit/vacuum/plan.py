"""The plan of a vacuum: what it would delete and why, and which versions can no longer be read."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit import plots
from compaction_kit.errors import InvalidArgumentError, StalePlanError
from compaction_kit.execute.work import Progress
from compaction_kit.folder import COLUMNS, WithFiles
from compaction_kit.handle import Handle
from compaction_kit.history.readable import YES, FilesByVersion, read_files_by_version
from compaction_kit.records import Plan
from compaction_kit.retention import GUARD, IGNORE_RETAIN, in_words
from compaction_kit.text import (
    as_html_table,
    format_count,
    format_files,
    format_list,
    format_size,
    joined_lines,
)
from compaction_kit.times import show_time
from compaction_kit.vacuum import decide
from compaction_kit.vacuum.run import VacuumResult, delete, ranges, reporting, still_there

_REASONS = {
    decide.TOMBSTONE: "that older versions need",
    decide.CHANGE_DATA: "of the change data feed",
    decide.ORPHAN: "that no version in the log needs",
}


@dataclass(frozen=True, repr=False)
class VacuumPlan(WithFiles, Plan):
    """The files that VACUUM would delete at a time, and the versions lost; only `run()` deletes.

    Attributes:
        version: The version that the plan was made for; the plan runs only on this version.
        at: The time of the vacuum.
        retention, table_retention: How long removed files are kept, by this plan and by the table's property.
        keep_versions: The versions whose files are all kept.
        files: One row per file to delete: path (string, relative to the table, decoded), size_bytes (int64),
            reason ("tombstone": versions needed it; "change data": of the change data feed; "orphan": no
            version in the log needs it), since_version (int64, the first version that doesn't need it),
            removed_at (timestamp; both null if the log doesn't have them), modification_time (timestamp).
        empty_directories: The paths of the empty folders, which are deleted too; a folder that holds only
            such folders is left for the next run.
        kept: The number and bytes of kept files by reason: "live", "removed within the retention", "written
            within the retention", "needed by a kept version", "a colon in its name" (VACUUM can't delete
            such a file), "deletion vectors" (of live files), "live, but a plain VACUUM deletes it" (Delta
            doesn't know paths that it would encode in another way); without hidden files, such as the log.
        storage: The bytes of files that aren't hidden, before and after, by kind: "live", "deletion vectors"
            (of live files, if there are any), "tombstoned", "orphaned".
        versions: The versions in the log: version, timestamp, readable and readable_after, with the values
            of `Table.versions()`.
        versions_lost: The versions that can be read now but not afterwards, the latest too if it is older
            than the retention: VACUUM commits two versions after it (not on S3, by default), and then
            Delta's guard refuses it.
        content_survives_as: For each lost version, a version that can be read afterwards and has the same
            content; `version` + 2 is the last one that VACUUM itself commits.
        content_survives_by: The evidence for this, as same_content_by in `Table.versions()`.
        warning: Sentences about kept versions that Delta's guard refuses, or whose commits Delta may delete;
            empty if there are none.
    """

    handle: Handle = field(repr=False, compare=False)
    version: int
    at: datetime
    retention: timedelta
    table_retention: timedelta
    keep_versions: tuple[int, ...]
    files: pa.Table
    empty_directories: tuple[str, ...]
    kept: pa.Table
    storage: pa.Table
    versions: pa.Table
    versions_lost: list[int]
    content_survives_as: dict[int, int]
    content_survives_by: dict[int, str]
    warning: str

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be deleted."""
        return not self.num_files and not self.empty_directories

    def run(self, progress: bool | Callable[[Progress], None] | None = None) -> VacuumResult:
        """Delete the planned files and nothing else, by Delta's VACUUM USING INVENTORY.

        Delta checks each file again against the log. No setting of the session is weakened: with the
        retention check on, no file younger than the table's retention is deleted.

        Args:
            progress: True for a progress bar, or a callable that takes a `Progress`, estimated from a sample
                of the files; an exception that it raises cancels the run.

        Raises:
            InvalidArgumentError: The plan is for a time in the future.
            StalePlanError: The table, or a file of the plan, has changed since the plan was made.
            ReadOnlyTableError: The table's log can't be written to.
            RunFailedError, RunCancelled: The message says what was deleted.
        """
        start, handle = time.monotonic(), self.handle
        if self.at > datetime.now(UTC):
            raise InvalidArgumentError(
                f"The plan is a preview for {show_time(self.at)}, which is in the future: run it then, or "
                "make a plan without at; nothing was deleted."
            )
        before = _check_fresh(self)
        readable = before.versions[before.statuses() == YES].tolist()
        handle.warn_of_commit_risk()
        hours = f"{self.retention / timedelta(hours=1):g}"
        retain = f" RETAIN {hours} HOURS" if self.retention < self.table_retention else ""
        with reporting(handle.store, self.files, progress) as look:
            if not self.is_empty:
                delete(handle, self.files, self.empty_directories, retain, look)
            # It is too late to cancel.
            with contextlib.suppress(Exception):
                look()
        return _result(self, readable, start)

    def explain(self) -> str:
        """Explain the cost, the deletions and the kept files, one sentence per line."""
        retention = in_words(self.retention)
        kept = f"files removed less than {retention} before are kept"
        if self.retention > self.table_retention:
            kept += ", as far as the log has their removal"
        who = f"A query or write that began more than {retention} before and still runs"
        if self.is_empty:
            lines = [f"VACUUM on {show_time(self.at)} would delete nothing: {kept}."]
        else:
            lines = [
                self._cost(),
                f"VACUUM on {show_time(self.at)} would delete {self._deleted()}; {kept}.",
                f"{who} may need these files." if len(self.files) else "",
            ]
        if self.keep_versions:
            lines.append(self._kept_versions())
        if self.retention > self.table_retention and self.handle.goes_by(IGNORE_RETAIN):
            lines.append(
                "Delta since 4.1 ignores RETAIN and would keep removed files for "
                f"{in_words(self.table_retention)}, the table property; run() keeps them for {retention}."
            )
        if self.at > datetime.now(UTC) and self.handle.goes_by(GUARD):
            old = f"earlier versions that are older than {in_words(self.table_retention)}"
            lines.append(f"By then, Delta also refuses {old}, unless {GUARD} is false.")
        return joined_lines([*lines, self.warning])

    summary = explain

    def parts(self) -> tuple[object, ...]:
        """Return the sentences, a table of the kept files, and the figure."""
        rows = zip(*self.kept.to_pydict().values(), strict=True)
        kept = [(reason, f"{number:,}", format_size(size_bytes)) for reason, number, size_bytes in rows]
        table = [as_html_table(("reason to keep", "files", "bytes"), kept)] if kept else []
        return self.explain(), *table, self.plot()

    def plot(self) -> "plots.Chart":
        """Draw the storage now and after, and which versions can be read now and after."""
        if self.is_empty:
            return plots.vacuum(self.storage, self.versions, "VACUUM would delete nothing")
        now, lost = self.versions["readable"].to_pylist().count(YES), len(self.versions_lost)
        which = f"{lost:,} of {now:,} readable versions" if lost else "no readable version"
        which = "the only readable version" if lost == now == 1 else which
        title = f"VACUUM would lose {which} and free {format_size(self.size_bytes)}"
        if survivors := self.content_survives_as:
            rows = "its rows" if lost == 1 else f"the rows of {len(survivors):,}"
            where = "another version" if len({*survivors.values()}) == 1 else "other versions"
            title += f"; {rows} can still be read in {where}"
        return plots.vacuum(self.storage, self.versions, title)

    def _cost(self) -> str:
        if not (lost := self.versions_lost):
            return "No readable version would be lost."
        cost = f"{format_count(len(lost), 'readable version')} would be lost: {ranges(lost)}."
        if survivors := self.content_survives_as:
            by, own = self.content_survives_by, {self.version + 2: "VACUUM's own commit"}
            pairs = [f"{one} as {own.get(other, other)} ({by[one]})" for one, other in survivors.items()]
            cost += f" The same content can still be read as another version: {format_list(pairs)}."
        return cost

    def _deleted(self) -> str:
        reasons, number = self.files["reason"].to_pylist(), len(self.empty_directories)
        counts = [f"{reasons.count(key):,} {words}" for key, words in _REASONS.items() if key in reasons]
        files = f"{format_files(self.num_files, self.size_bytes)}: {', '.join(counts)}" if counts else ""
        folders = format_count(number, "empty folder") if number else ""
        return ", and ".join(filter(None, (files, folders)))

    def _kept_versions(self) -> str:
        noun = "version" if len(self.keep_versions) == 1 else "versions"
        which = f"All files of {noun} {ranges(self.keep_versions)} are kept"
        if self.retention > self.table_retention:
            return f"{which}."
        rows = self.kept.filter(pc.field("reason") == decide.NEEDED).to_pylist()
        if not rows:
            return f"{which}; a plain VACUUM would keep them too."
        files = format_files(rows[0]["num_files"], rows[0]["size_bytes"])
        return f"{which}; a plain VACUUM would delete {files} of them."


def plan_vacuum(
    handle: Handle,
    retention: str | None = None,
    keep_versions: Sequence[int] | None = None,
    mode: str = "FULL",
    at: datetime | str | None = None,
) -> VacuumPlan:
    """Plan VACUUM; see `Table.plan_vacuum` for the arguments and errors.

    VACUUM deletes each file that is older than the retention, not live, and without a tombstone younger
    than the retention. Hidden files and folders are kept.

    Examples:
        >>> vacuum = ck.open_table("data/flights").plan_vacuum(at="2100-01-01")
        >>> vacuum.explain()
        'VACUUM on 2100-01-01 00:00+00:00 would delete nothing: files removed less than 7 days before are ...'
        >>> vacuum.kept.select(["reason", "num_files"]).to_pylist()
        [{'reason': 'live', 'num_files': 1095}]
    """
    moment = handle.instant(at)
    if not isinstance(mode, str) or mode.upper() != "FULL":
        raise InvalidArgumentError(
            f'mode={mode!r} is not planned here: use mode="FULL", or run VACUUM … LITE in SQL.'
        )
    needs = read_files_by_version(handle)
    chosen = decide.vacuum_retention(handle, needs.retention, retention)
    keep = decide.check_versions(needs, keep_versions)
    decided = decide.decide(needs, keep, moment, chosen)
    return VacuumPlan(handle, needs.latest, moment, chosen, needs.retention, keep, **decided)


def _check_fresh(plan: VacuumPlan) -> FilesByVersion:
    before, changed = read_files_by_version(plan.handle), ""
    planned = plan.files.select(COLUMNS.names).cast(COLUMNS)
    others = planned.join(before.folder.files, COLUMNS.names, join_type="left anti")["path"].to_pylist()
    if before.latest != plan.version:
        changed = f"The plan was made at version {plan.version} and the table is at {before.latest}"
    elif others:
        number = format_count(len(others), "planned file")
        changed = f"{number} ({format_list(sorted(others))}) changed or missing since the plan was made"
    if changed:
        raise StalePlanError(f"{changed}: make a new plan; nothing was deleted.")
    return before


def _result(plan: VacuumPlan, readable: list[int], start: float) -> VacuumResult:
    store, after = plan.handle.store, read_files_by_version(plan.handle)
    planned = plan.files.select(["path", "size_bytes"])
    exists = pa.array(still_there(store, planned["path"].to_pylist()), pa.bool_())
    left = planned.filter(exists)
    young = after.young_tombstones(plan.at, plan.retention)
    named = pa.chunked_array([*after.live["path"].chunks, *young["path"].chunks], pa.string())
    why = pc.if_else(
        pc.is_in(left["path"], value_set=named),
        f"version {after.latest}, committed during the run, names it",
        "the file system refused to delete it",
    )
    is_now = dict(zip(after.versions.tolist(), after.statuses().tolist(), strict=True))
    lost = [version for version in readable if is_now.get(version) != YES]
    by_vacuum = (pc.field("version") > plan.version) & pc.starts_with(pc.field("operation"), "VACUUM ")
    return VacuumResult(
        files=planned.filter(pc.invert(exists)),
        not_deleted=left.append_column("why", why),
        directories=tuple(path for path in plan.empty_directories if not store.is_folder(path)),
        commits=tuple(after.commits.filter(by_vacuum)["version"].to_pylist()),
        versions_lost=lost,
        as_planned=not len(left) and lost == plan.versions_lost,
        seconds=time.monotonic() - start,
    )

"""The result of a vacuum, by the folder and the log after it, compared with the plan."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure

from compaction_kit import plots
from compaction_kit.folder import list_folder
from compaction_kit.history.readable import LOG_GONE, YES, Readability, read_readability
from compaction_kit.records import Result
from compaction_kit.text import format_count, format_list, format_seconds, format_size
from compaction_kit.vacuum.cost import Preview, ranges, spent_versions
from compaction_kit.vacuum.decide import storage_table

_NOT_DELETED = pa.schema([("path", pa.string()), ("size_bytes", pa.int64()), ("why", pa.string())])
_OPERATIONS = ("VACUUM START", "VACUUM END")


@dataclass(frozen=True, repr=False)
class VacuumResult(Result):
    """What a vacuum did.

    Attributes:
        files: The deleted files: path (string, relative to the table, decoded), size_bytes (int64).
        not_deleted: The planned files that were not deleted: path, size_bytes, why (string).
        not_planned: Paths that no longer exist and were not planned: others deleted them.
        directories: The paths of the deleted folders.
        commits: The versions that VACUUM committed, its start and its end; none if
            spark.databricks.delta.vacuum.logging.enabled is off in the session.
        storage, versions: As in the plan, with the actual state after the run.
        versions_lost: The versions that could be read before and can't be read now.
        content_survives_as: For versions lost, a version with the same content that can be read now.
        versions_lost_as_planned: Whether exactly the planned versions were lost.
        seconds: The duration of the whole run.
    """

    files: pa.Table
    not_deleted: pa.Table
    not_planned: tuple[str, ...]
    directories: tuple[str, ...]
    commits: tuple[int, ...]
    storage: pa.Table
    versions: pa.Table
    versions_lost: list[int]
    content_survives_as: Mapping[int, int]
    versions_lost_as_planned: bool
    seconds: float

    @property
    def num_files(self) -> int:
        """The number of deleted files."""
        return self.files.num_rows

    @property
    def size_bytes(self) -> int:
        """The bytes of the deleted files."""
        return pc.sum(self.files["size_bytes"]).as_py() or 0

    @property
    def as_planned(self) -> bool:
        """Whether exactly the planned files were deleted and the planned versions lost."""
        return not len(self.not_deleted) and not self.not_planned and self.versions_lost_as_planned

    def facts(self) -> dict[str, str]:
        """Return the outcome for people: name and value."""
        if not self.num_files and not self.directories and not len(self.not_deleted):
            return {"outcome": "nothing to do: the plan is empty, so nothing was deleted"}
        lost = f"{len(self.versions_lost):,}: {ranges(self.versions_lost)}" if self.versions_lost else "none"
        facts = {"versions lost": lost}
        if self.content_survives_as:
            pairs = [f"{lost} as {other}" for lost, other in self.content_survives_as.items()]
            facts["of the same content"] = format_list(pairs)
        facts["deleted"] = (
            f"{format_count(self.num_files, 'file')}, {format_size(self.size_bytes)}"
            f"{', as planned' if self.as_planned else ''}"
        )
        if self.directories:
            facts["folders"] = f"{format_count(len(self.directories), 'empty folder')} deleted"
        if len(self.not_deleted):
            rows = [f"{row['path']}: {row['why']}" for row in self.not_deleted.to_pylist()]
            facts["not deleted"] = f"{format_count(len(rows), 'file')}: {format_list(rows, 3, '; ')}"
        if self.not_planned:
            facts["not planned"] = f"{format_count(len(self.not_planned), 'file')} that others deleted"
        if self.commits:
            facts["committed"] = f"version {', '.join(map(str, self.commits))}: VACUUM's start and end"
        return facts | {"time": format_seconds(self.seconds)}

    def parts(self) -> tuple[object, ...]:
        """Return the facts and the figure."""
        return self.facts(), self.plot()

    def plot(self) -> Figure:
        """Draw the storage before and after, and which versions could be read before and after."""
        before = self.versions["readable"].to_pylist().count(YES)
        spent = spent_versions(self.versions_lost, self.content_survives_as, before)
        title = f"VACUUM cost {spent} and freed {format_size(self.size_bytes)}"
        return plots.vacuum(self.storage, self.versions, title)


def measure(plan: Preview, on_disk: pa.Table, before: Readability, seconds: float) -> VacuumResult:
    """Measure what a vacuum did, by the folder and the log after it.

    Args:
        plan: The plan.
        on_disk: The files in the folder before the run.
        before: Which versions could be read before the run.
        seconds: The duration of the run.
    """
    store, log = plan.handle.store, plan.handle.log
    now = list_folder(store, log.snapshot().metadata.partition_columns)
    after = read_readability(plan.handle, now)
    planned = plan.files.select(["path", "size_bytes"])
    exists = pa.array(still_there(plan), pa.bool_())
    others = on_disk["path"].filter(pc.invert(pc.is_in(on_disk["path"], value_set=planned["path"])))
    statuses = dict(zip(after.needs.versions.tolist(), after.statuses().tolist(), strict=True))
    readable_after = np.array([statuses.get(int(version), LOG_GONE) for version in before.needs.versions])
    versions = before.compared(before.statuses(), readable_after)
    could, can = (pc.equal(versions[name], YES) for name in ("readable", "readable_after"))
    lost = versions["version"].filter(pc.and_not(could, can)).to_pylist()
    stored = storage_table(now, after.needs, pa.array([], pa.string()))["size_bytes"]
    survivors = {version: other for version, other in plan.content_survives_as.items() if version in lost}
    commits = log.commits()
    is_own = pc.is_in(commits["operation"], value_set=pa.array(_OPERATIONS))
    is_own = pc.and_(is_own, pc.greater(commits["version"], plan.version))
    return VacuumResult(
        files=planned.filter(pc.invert(exists)),
        not_deleted=_not_deleted(plan, planned.filter(exists), after),
        not_planned=tuple(others.filter(pc.invert(pc.is_in(others, value_set=now["path"]))).to_pylist()),
        directories=tuple(path for path in plan.empty_directories if not store.is_folder(path)),
        commits=tuple(commits["version"].filter(is_own).to_pylist()),
        storage=plan.storage.set_column(2, "size_bytes_after", stored),
        versions=versions,
        versions_lost=lost,
        content_survives_as={
            version: other for version, other in survivors.items() if statuses.get(other) == YES
        },
        versions_lost_as_planned=lost == plan.versions_lost,
        seconds=seconds,
    )


def still_there(plan: Preview) -> list[bool]:
    """Return whether each planned file is on disk."""
    return list(map(plan.handle.store.listed().is_taken, plan.files["path"].to_pylist()))


def _not_deleted(plan: Preview, files: pa.Table, after: Readability) -> pa.Table:
    """Make `VacuumResult.not_deleted`."""
    needs, rows = after.needs, files.to_pylist()
    needed = {*needs.live["path"].to_pylist(), *needs.young_tombstones(plan.cutoff)["path"].to_pylist()}
    for row in rows:
        folder = row["path"].rpartition("/")[0]
        if row["path"] in needed:
            row["why"] = f"version {needs.latest}, committed during the run, names it"
        elif not plan.handle.store.may_write(folder):
            row["why"] = f"the folder {plan.handle.store.place(folder)} can't be written to"
        else:
            row["why"] = "the file system refused to delete it"
    return pa.Table.from_pylist(rows, _NOT_DELETED)

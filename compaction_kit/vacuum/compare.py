"""What a vacuum did, beside what was planned."""

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.folder import look_through
from compaction_kit.history.expiry import to_millis
from compaction_kit.history.readable import LOG_GONE, YES, Readability, read_readability
from compaction_kit.log import TransactionLog
from compaction_kit.times import millis
from compaction_kit.vacuum.plan import VacuumPlan
from compaction_kit.vacuum.references import References, read_references
from compaction_kit.vacuum.result import NOT_DELETED, VacuumResult
from compaction_kit.vacuum.tables import storage_table

_OPERATIONS = ("VACUUM START", "VACUUM END")


@dataclass(frozen=True)
class Before:
    """The files in the folder before a vacuum, and what decided which versions could be read."""

    on_disk: pa.Table
    state: Readability


def compare(
    table: Path, log: TransactionLog, plan: VacuumPlan, before: Before, seconds: float
) -> VacuumResult:
    """Look at the disk and the log after a vacuum.

    Args:
        table: The table's folder.
        log: Its log.
        plan: What was planned.
        before: How it was before.
        seconds: How long the vacuum took.
    """
    snapshot = log.snapshot()
    folder = look_through(table, snapshot.metadata.partition_columns)
    state = read_readability(table, log, before.state.guard, folder.files)
    references = read_references(snapshot, table)
    stayed = pa.array(still_there(table, plan), pa.bool_())
    planned = plan.files.select(["path", "size_bytes"])
    paths = planned["path"]
    vanished = before.on_disk["path"]
    for known in (folder.files["path"], paths):
        vanished = vanished.filter(pc.invert(pc.is_in(vanished, value_set=known)))
    versions = _versions(before.state, state)
    can, could = (pc.equal(versions[name], YES) for name in ("readable_after", "readable"))
    lost = versions.filter(pc.and_(could, pc.invert(can)))["version"].to_pylist()
    able = set(state.needs.versions[state.statuses() == YES].tolist())
    stored = storage_table(folder, references, state, pa.array([], pa.string()))["size_bytes"]
    return VacuumResult(
        files=planned.filter(pc.invert(stayed)),
        not_deleted=_not_deleted(table, plan, planned.filter(stayed), references, snapshot.version),
        not_planned=tuple(vanished.to_pylist()),
        directories=tuple(path for path in plan.empty_directories if not (table / path).is_dir()),
        commits=_commits(log, plan.version),
        storage=plan.storage.set_column(2, "size_bytes_after", stored),
        versions=versions,
        versions_lost=lost,
        content_survives_as={
            version: other
            for version, other in plan.content_survives_as.items()
            if version in lost and other in able
        },
        versions_lost_as_planned=lost == plan.versions_lost,
        seconds=seconds,
    )


def still_there(table: Path, plan: VacuumPlan) -> list[bool]:
    """Whether each planned file is on disk."""
    return [os.path.lexists(table / path) for path in plan.files["path"].to_pylist()]


def _versions(before: Readability, after: Readability) -> pa.Table:
    """What became of each version that was there before."""
    now = dict(zip(after.needs.versions.tolist(), after.statuses(), strict=True))
    versions = before.needs.versions
    times = pa.array(before.times, mask=~before.has_commit)
    return pa.table(
        {
            "version": versions,
            "timestamp": times.cast(pa.timestamp("ms", "UTC")),
            "readable": pa.array(before.statuses(), pa.string()),
            "readable_after": [now.get(version, LOG_GONE) for version in versions.tolist()],
        }
    )


def _not_deleted(
    table: Path, plan: VacuumPlan, files: pa.Table, references: References, version: int
) -> pa.Table:
    cutoff = millis(plan.at) - to_millis(plan.retention)
    needed = pa.concat_arrays([references.live, references.young(cutoff)["path"].combine_chunks()])
    needed_again = set(files["path"].filter(pc.is_in(files["path"], value_set=needed)).to_pylist())
    rows = [
        row | {"why": _why(table / row["path"], row["path"] in needed_again, version)}
        for row in files.to_pylist()
    ]
    return pa.Table.from_pylist(rows, NOT_DELETED)


def _why(place: Path, is_needed: bool, version: int) -> str:
    if is_needed:
        return f"version {version} names it, which was committed meanwhile"
    if not os.access(place.parent, os.W_OK | os.X_OK):
        return f"the folder {place.parent} can't be written to"
    return "the file system refused to delete it"


def _commits(log: TransactionLog, since: int) -> tuple[int, ...]:
    commits = log.commits()
    own = pc.is_in(commits["operation"], value_set=pa.array(_OPERATIONS))
    later = pc.and_(own, pc.greater(commits["version"], since))
    return tuple(commits.filter(later)["version"].to_pylist())

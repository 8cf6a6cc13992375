"""Every version that the log knows: whether it can be read, until when, and what to read instead."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.folder import list_folder
from compaction_kit.history.content import Compare, Content, read_content
from compaction_kit.history.expiry import NEVER, first_expiry, to_millis
from compaction_kit.history.needs import Needs
from compaction_kit.history.readable import LOG_GONE, YES, Readability, read_readability
from compaction_kit.log import TransactionLog

VERSION_COLUMNS = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("operation", pa.string()),
        ("readable", pa.string()),
        ("num_missing", pa.int64()),
        ("missing", pa.list_(pa.string())),
        ("readable_until", pa.timestamp("ms", "UTC")),
        ("same_content_as", pa.int64()),
        ("same_content_by", pa.string()),
        ("content_claim", pa.string()),
        ("read_instead", pa.int64()),
    ]
)
_MOST_MISSING = 10


def read_versions(
    table: Path,
    log: TransactionLog,
    now: datetime | None = None,
    guard: bool = True,
    compare: Compare | None = None,
) -> pa.Table:
    """Every version that the log knows, oldest first.

    Args:
        table: The table's folder.
        log: Its log.
        now: At which time, with the files that are there; None for now.
        guard: Whether Delta refuses versions older than the retention of deleted files, as it does
            from 4.1 on unless the session says otherwise.
        compare: Tells by reading whether two versions have the same rows: asked about each commit
            that replaced files and says that it changed no data. None: nothing is read but the log.

    Returns:
        version; timestamp (UTC, when it was committed, as time travel has it; null without a
        commit); operation; readable ("yes", "blocked" by the guard, "missing files", "log gone":
        the version can't be read back from the log any more); num_missing and missing (how many
        of the files that it needs aren't on disk, and the first ten of their paths); readable_until
        (UTC: when VACUUM may delete the first file that it needs, or the guard blocks it, whichever
        is first; null if neither will, as for the latest, or if it can't be read); same_content_as
        (the lowest other version that is known to have the same rows and columns; see
        `content.read_content`); same_content_by (how that is known: "identical files", "says
        OPTIMIZE, row counts agree", "equal fingerprints"); content_claim (what the commit says and
        nothing else shows: "claimed by its writer" if it replaced files and says that it changed no
        data, with ", contradicted by the row counts" or ", refuted by the fingerprints" where it is
        wrong); read_instead (of a version that can't be read, the latest of the same content that
        can).
    """
    moment = now or datetime.now(UTC)
    snapshot = log.snapshot()
    on_disk = list_folder(table, snapshot.metadata.partition_columns)
    state = read_readability(table, log, guard, on_disk)
    needs, commits = state.needs, log.commits()
    statuses = state.statuses(moment)
    until = _until(state, first_expiry(table, snapshot, needs, on_disk, state.retention))
    content = read_content(log, compare)
    others, instead = _alternatives(needs.versions, content.groups, statuses == YES)
    counts, missing = _missing(needs, state.missing)
    known = pa.table(
        [
            pa.array(needs.versions),
            pa.array(statuses, pa.string()),
            pa.array(counts),
            pa.array(missing, pa.list_(pa.string())),
            pa.array(until, pa.timestamp("ms", "UTC"), mask=(until == NEVER) | (statuses != YES)),
            pa.array(others, pa.int64(), mask=others < 0),
            pa.array(_evidence(content, needs.versions, others), pa.string()),
            pa.array(content.claims, pa.string()),
            pa.array(instead, pa.int64(), mask=instead < 0),
        ],
        ["version", *VERSION_COLUMNS.names[3:]],
    )
    told = commits.select(["version", "operation"]).append_column("timestamp", log.commit_times())
    versions = pa.array(np.union1d(commits["version"].to_numpy(), needs.versions))
    columns = {"version": versions}
    for part in (told, known):
        rows = pc.index_in(versions, value_set=part["version"])
        columns |= {name: part[name].take(rows) for name in part.column_names if name != "version"}
    columns["readable"] = pc.fill_null(columns["readable"], LOG_GONE)
    return pa.table(columns).select(VERSION_COLUMNS.names).cast(VERSION_COLUMNS)


def _until(state: Readability, expiry: np.ndarray) -> np.ndarray:
    blocked = np.full(len(expiry), NEVER)
    if state.guard:
        blocked[:-1] = state.times[:-1] + to_millis(state.retention)
    return np.minimum(expiry, blocked)


def _alternatives(
    versions: np.ndarray, groups: np.ndarray, readable: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each version the lowest other one of its group, and the latest one to read instead; -1 for none."""
    others, instead = np.full(len(versions), -1), np.full(len(versions), -1)
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        if len(members) > 1:
            others[members] = versions[members[0]]
            others[members[0]] = versions[members[1]]
        able = members[readable[members]]
        if len(able):
            instead[members[~readable[members]]] = versions[able[-1]]
    return others, instead


def _evidence(content: Content, versions: np.ndarray, others: np.ndarray) -> list[str | None]:
    pairs = zip(versions.tolist(), others.tolist(), strict=True)
    return [content.evidence(version, other) if other >= 0 else None for version, other in pairs]


def _missing(needs: Needs, paths: pa.Array) -> tuple[np.ndarray, list[list[str]]]:
    """How many of the files each version lacks, and the first of them."""
    lacking = needs.files.filter(pc.is_in(needs.files["path"], value_set=paths)).sort_by("path")
    names = lacking["path"].combine_chunks()
    added, removed = lacking["added"].to_numpy(), lacking["removed"].to_numpy()
    firsts = []
    for version in needs.versions:
        within = np.flatnonzero((added <= version) & (version < removed))[:_MOST_MISSING]
        firsts.append(names.take(pa.array(within)).to_pylist())
    return needs.count(paths), firsts

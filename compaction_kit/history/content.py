"""Find versions with the same rows, and read the first rows of a version."""

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from compaction_kit.arrow.duckdb import compare_quickly
from compaction_kit.compat import has_jvm
from compaction_kit.errors import RunCancelled, RunFailedError, reason_of
from compaction_kit.execute.commits import proved_rows, run_of
from compaction_kit.execute.failures import ContentDiffers, NotCompared
from compaction_kit.execute.jobs import WorkCancelled, run_cancellable
from compaction_kit.execute.proof import contents, reading_every_row
from compaction_kit.execute.work import Adds
from compaction_kit.handle import Handle
from compaction_kit.history.readable import FilesByVersion
from compaction_kit.log.actions import PARTITION
from compaction_kit.log.paths import one_array
from compaction_kit.log.protocol import columns_of
from compaction_kit.log.snapshot import Snapshot, file_keys
from compaction_kit.query import MISSING_FILE, SPARK_ERRORS
from compaction_kit.reads import frame_at
from compaction_kit.session import quiet_errors
from compaction_kit.verify import Fingerprint

# The evidence that two versions have the same rows, the strongest first.
IDENTICAL, PROVED, COUNTED = "identical files", "proved", "row counts agree"
# Operations that rewrite files and keep the rows (DeltaOperations).
_REWRITES = ("OPTIMIZE", "REORG")
# The fields of an add action that Delta needs to read the file.
_ADD_FIELDS = ("path", "partitionValues", "size", "modificationTime", "dataChange", "deletionVector")
_NOTHING = Fingerprint(0, (0, 0))


@dataclass(frozen=True)
class SameContent:
    """Which versions, from `first` on, are known to have the same rows and columns.

    `states` are equal for equal sets of live files and equal schemas. `groups` has for each version the
    lowest version that is known to have the same content; `proved` has the same if only proofs count.
    """

    first: int
    states: np.ndarray
    groups: np.ndarray
    proved: np.ndarray

    def evidence(self, version: int, other: int) -> str | None:
        """Return the evidence that two versions have the same content; None if there is none."""
        version, other = version - self.first, other - self.first
        if self.groups[version] != self.groups[other]:
            return None
        if self.states[version] == self.states[other]:
            return IDENTICAL
        return PROVED if self.proved[version] == self.proved[other] else COUNTED


def find_same_content(needs: FilesByVersion) -> SameContent:
    """Find the versions that have the same content.

    Versions have the same content if they have the same files and schema, as after a RESTORE, or if each
    commit between them only rewrites files: its actions have dataChange=false, its operation is OPTIMIZE or
    REORG or it has this kit's tag, and it adds as many rows as it removes, by the statistics in the log.
    dataChange alone proves nothing: any writer may set it, and Delta doesn't check it. A commit of this kit
    may have the fingerprint of its rows in its userMetadata, which is a proof if its writer is trusted; a
    commit by OPTIMIZE is proved after Delta made it, which only the run's handle knows.
    """
    lifetimes, first = needs.lifetimes, needs.first
    columns = ["version", "operation", "user_metadata", "data_change"]
    commits = {row["version"]: row for row in needs.commits.select(columns).to_pylist()}
    # Sums of random 64-bit numbers of the live files: other files have the same sum once in 10^19. A file in
    # another partition counts as another file.
    keys = pc.binary_join_element_wise(file_keys(lifetimes), one_array(lifetimes["partition"]), "\0")
    keys = keys.dictionary_encode().indices.to_numpy()
    draws = np.random.default_rng(7).integers(0, 2**64, keys.max(initial=0) + 1, np.uint64)
    files = needs.totals(lifetimes, draws[keys])
    schemas = _numbers(needs.schemas)
    rewrites: dict[int, str | None] = {}
    counts = None
    for i in (np.flatnonzero((files[1:] != files[:-1]) & (schemas[1:] == schemas[:-1])) + 1).tolist():
        commit = commits.get(first + i)
        if commit is not None and not commit["data_change"]:
            counts = counts or row_counts(needs)
            is_proved = run_of(commit["user_metadata"]) in needs.handle.proved
            rewrites[i] = PROVED if is_proved else _judge(commit, *counts[i])
    states = np.unique(np.column_stack([files, schemas]), axis=0, return_inverse=True)[1].reshape(-1)
    proofs = {i for i, evidence in rewrites.items() if evidence == PROVED}
    known = {i for i, evidence in rewrites.items() if evidence}
    return SameContent(first, states, _groups(states, first, known), _groups(states, first, proofs))


def _groups(states: np.ndarray, first: int, rewrites: set[int]) -> np.ndarray:
    """Return for each version, by number from `first` on, the lowest version with the same content."""
    groups = np.arange(first, first + len(states))
    lowest: dict[int, int] = {}
    for i, state in enumerate(states.tolist()):
        groups[i] = groups[i - 1] if i in rewrites else lowest.get(state, first + i)
        lowest.setdefault(state, int(groups[i]))
    return groups


def changed_rows(handle: Handle, version: int, other: int) -> tuple[Fingerprint, Fingerprint]:
    """Return the fingerprints of the files that only one of two versions with the same columns has.

    Equal fingerprints mean equal rows in both. A file with another deletion vector, or other partition
    values, counts as another file. Both versions are read completely over Spark Connect, and if their columns
    are found in different ways, such as by other names in the files.

    Raises:
        FileNotFoundError: Files to read are missing.
        RunFailedError, RunCancelled: The files can't be read, or Ctrl-C was pressed.
    """
    before, after = handle.log.snapshot(version), handle.log.snapshot(other)
    is_alike = _way_of_reading(before) == _way_of_reading(after)
    gone = _adds(before, after if is_alike else None)
    new = _adds(after, before if is_alike else None)
    if not gone and not new:
        return _NOTHING, _NOTHING
    spark = handle.spark
    try:
        with quiet_errors():
            # `compare_quickly` reads both sides by the columns of one version.
            if is_alike:
                with contextlib.suppress(NotCompared):
                    found = compare_quickly(spark, after, gone, new, checks_types=True)
                    return found, found
            with reading_every_row(spark, before.metadata) as own:
                read = partial(_fingerprint, own, handle.uri)
                return read(version, gone), read(other, new)
    except (*SPARK_ERRORS, ContentDiffers) as error:
        if any(sign in str(error) for sign in MISSING_FILE):
            raise FileNotFoundError(str(error)) from error
        reason = str(error) if isinstance(error, ContentDiffers) else reason_of(error)
        raise RunFailedError(f"Versions {version} and {other} can't be compared: {reason}.") from None
    except WorkCancelled:
        raise RunCancelled("Cancelled: the rows were not compared.") from None


def row_counts(needs: FilesByVersion) -> list[tuple[int | None, int | None]]:
    """Return how many rows each of `needs.versions` added and removed; None without statistics."""
    earliest, lifetimes = needs.earliest, needs.lifetimes
    deleted = pc.fill_null(earliest.live_files["deletion_vector_cardinality"].combine_chunks(), 0)
    at_first = pc.subtract(earliest.num_records, deleted).take(lifetimes["row"].combine_chunks())
    records = pc.coalesce(lifetimes["num_records"].combine_chunks(), at_first)
    add_up = [("records", "sum", pc.ScalarAggregateOptions(skip_nulls=False))]
    counts = []
    for change in ("added", "removed"):
        by_version = pa.table({"version": lifetimes[change], "records": records}).group_by("version")
        sums = dict(zip(*by_version.aggregate(add_up).to_pydict().values(), strict=True))
        counts.append([sums.get(version, 0) for version in needs.versions.tolist()])
    return list(zip(*counts, strict=True))


class FirstRows(NamedTuple):
    """Some rows of a version, and the names of their columns."""

    version: int
    columns: list[str]
    rows: list[tuple[Any, ...]]


def first_rows(
    handle: Handle, version: int, limit: int = 20, progress: Callable[[], object] | None = None
) -> FirstRows:
    """Read at most `limit` rows of a version, those that Spark finds first.

    An exception that `progress` raises cancels the reading.

    Raises:
        InvalidArgumentError, RunFailedError, RunCancelled: The version doesn't exist, can't be read, or
            reading was cancelled.
    """
    try:
        with quiet_errors():
            rows = frame_at(handle.spark, handle.store.root, version, "version").limit(limit)
            found = run_cancellable(handle.spark, rows.collect, progress or (lambda: None))
    except SPARK_ERRORS as error:
        is_gone = any(sign in str(error) for sign in MISSING_FILE)
        why = "files are gone, probably by VACUUM: choose another version" if is_gone else reason_of(error)
        raise RunFailedError(f"version={version} can't be read: {why}.") from None
    except WorkCancelled:
        raise RunCancelled("Cancelled: the rows were not read.") from None
    return FirstRows(version, rows.columns, [tuple(row) for row in found])


def _judge(commit: dict[str, Any], added: int | None, removed: int | None) -> str | None:
    """Return `PROVED` or `COUNTED` if a commit with dataChange=false is known to keep the rows."""
    if added is None or added != removed:
        return None
    if proved_rows(commit["user_metadata"]) == added:
        return PROVED
    is_rewrite = commit["operation"] in _REWRITES or run_of(commit["user_metadata"]) is not None
    return COUNTED if is_rewrite else None


def _numbers(schemas: Sequence[Any]) -> np.ndarray:
    """Number the schema of each version: equal schemas have equal numbers."""
    # Versions share the schema's object until a commit sets another.
    distinct = {id(one): one for one in schemas}
    texts = {key: json.dumps(columns_of(one), sort_keys=True) for key, one in distinct.items()}
    known: dict[str, int] = {}
    return np.array([known.setdefault(texts[id(one)], len(known)) for one in schemas], np.uint64)


def _fingerprint(spark: SparkSession, table: str, version: int, adds: Adds) -> Fingerprint:
    is_empty = not adds and has_jvm(spark)
    return _NOTHING if is_empty else contents(spark, table, [adds], [version], schema=version)[0]()


def _row_keys(snapshot: Snapshot) -> pa.Array:
    """Return the values that determine a live file's rows: the file, its deletion vector, its partition."""
    columns = snapshot.metadata.partition_columns
    if not columns:
        return file_keys(snapshot.live)
    # Delta reads "" as null.
    values = [pc.fill_null(one_array(snapshot.live_files[PARTITION + name]), "") for name in columns]
    return pc.binary_join_element_wise(file_keys(snapshot.live), *values, "\0")


def _way_of_reading(snapshot: Snapshot) -> tuple[Any, ...]:
    """Return the values that determine how files are read: the columns and the partition columns."""
    return columns_of(snapshot.metadata.schema), snapshot.metadata.partition_columns


def _adds(snapshot: Snapshot, other: Snapshot | None) -> Adds:
    """Return the add actions, as in the log, of the live files whose rows another version lacks."""
    files = snapshot.live
    if other is not None:
        files = files.filter(pc.invert(pc.is_in(_row_keys(snapshot), value_set=_row_keys(other))))
    adds = snapshot.adds(files)
    return [{"add": {name: add[name] for name in _ADD_FIELDS if name in add}} for add in adds]

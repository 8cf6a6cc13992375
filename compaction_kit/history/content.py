"""Which versions have the same content, and how that is known."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.arrow.duckdb import compare_quickly
from compaction_kit.errors import RunFailedError, reason_of
from compaction_kit.execute.commits import has_tag, stored_proof
from compaction_kit.execute.contents import contents
from compaction_kit.execute.failures import ContentDiffers, NotCompared
from compaction_kit.execute.jobs import WHOLE_FILES, session_confs
from compaction_kit.execute.work import Adds
from compaction_kit.handle import Handle
from compaction_kit.history.readable import read_schemas, running_totals
from compaction_kit.log.reconcile import file_keys
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.query import MISSING_FILE, SPARK_ERRORS
from compaction_kit.session import quiet_errors
from compaction_kit.verify import Fingerprint

IDENTICAL, FINGERPRINT = "identical files", "equal fingerprints"
# Of a commit in whose userMetadata the kit has left the fingerprint of its rows.
PROVED = "proved by compaction_kit"
CLAIMED = "claimed by its writer"
CONTRADICTED = "claimed by its writer, contradicted by the row counts"
REFUTED = "claimed by its writer, refuted by the fingerprints"
# Operations that rewrite files and keep the rows (DeltaOperations); any writer may use these names.
_REWRITES = ("OPTIMIZE", "REORG")
_SEED = 7
# What Delta needs of an add action to read the file.
_ADD_FIELDS = ("path", "partitionValues", "size", "modificationTime", "dataChange", "deletionVector")


@dataclass(frozen=True)
class Content:
    """What is known about the content of versions; each array and list has one value per version.

    Attributes:
        first: The first version.
        states: A number that is equal for equal sets of live files and equal schemas.
        groups: The lowest version that is known to have the same content.
        rewrites: How it is known that a commit which replaced files kept the rows: the name of its
            operation, `PROVED` or `FINGERPRINT`; None if it isn't known.
        claims: `CLAIMED`, `CONTRADICTED` or `REFUTED` for a commit that replaced files and says, without
            further evidence, that it changed no data; else None.
    """

    first: int
    states: np.ndarray
    groups: np.ndarray
    rewrites: list[str | None]
    claims: list[str | None]

    def evidence(self, version: int, other: int) -> str | None:
        """Return how it is known that two versions have the same content; None if it isn't known.

        Returns:
            "identical files", "equal fingerprints", "proved by compaction_kit", or "says OPTIMIZE, row counts
            agree", for the weakest link between the two.
        """
        version, other = version - self.first, other - self.first
        if self.groups[version] != self.groups[other]:
            return None
        if self.states[version] == self.states[other]:
            return IDENTICAL
        members = np.flatnonzero(self.groups == self.groups[version])
        found = {name for i in members if (name := self.rewrites[i]) is not None}
        names = sorted(found - {PROVED, FINGERPRINT})
        if names:
            return f"says {' and '.join(names)}, row counts agree"
        return PROVED if PROVED in found else FINGERPRINT

    def claim(self, version: int, other: int) -> str | None:
        """Return what writers claim about two versions that aren't known to be equal; else None."""
        low, high = sorted((version - self.first, other - self.first))
        steps = range(low + 1, high + 1)
        if self.groups[low] == self.groups[high] or not all(
            self.groups[i] == self.groups[i - 1] or self.claims[i] for i in steps
        ):
            return None
        claims = {self.claims[i] for i in steps}
        return next(claim for claim in (REFUTED, CONTRADICTED, CLAIMED) if claim in claims)


def read_content(handle: Handle, verify: bool = False) -> Content:
    """Find the versions that have the same content.

    Two versions have the same content if they have the same files and schema, as after a RESTORE, or if
    each commit between them keeps files and schema or only rewrites files. A commit only rewrites files if
    its actions have dataChange=false (protocol, "Add File and Remove File"), its operation is OPTIMIZE or
    REORG or it has this kit's tag, and it adds as many rows as it removes, by the statistics in the log.
    dataChange alone proves nothing: any writer may set it, and Delta doesn't check it. A commit of this kit
    may have the fingerprint of its rows in its userMetadata, which is the word of who ran it.

    Args:
        handle: The table.
        verify: Whether to compare the fingerprints of the files that each commit with dataChange=false
            replaced, whatever its operation; commits whose files are missing are not compared.
    """
    first, lifetimes = handle.log.lifetimes()
    columns = ["version", "operation", "user_metadata", "data_change"]
    commits = {row["version"]: row for row in handle.log.commits().select(columns).to_pylist()}
    latest = handle.log.segment().version
    files = _file_sets(lifetimes, first.version, latest)
    schemas = _numbers(read_schemas(handle, first, latest))
    rewrites: list[str | None] = [None] * len(files)
    claims: list[str | None] = [None] * len(files)
    counts = None
    suspects = np.flatnonzero((files[1:] != files[:-1]) & (schemas[1:] == schemas[:-1])) + 1
    for i in suspects.tolist():
        commit = commits.get(first.version + i)
        # Nothing is known about a commit that is missing.
        if commit is not None and not commit["data_change"]:
            counts = counts or _row_counts(first, lifetimes)
            added, removed = (count.get(commit["version"], 0) for count in counts)
            rewrites[i], claims[i] = _judge(handle, commit, added, removed, verify)
    states = np.unique(np.column_stack([files, schemas]), axis=0, return_inverse=True)[1].reshape(-1)
    groups = np.arange(first.version, latest + 1)
    lowest: dict[int, int] = {}
    for i, state in enumerate(states.tolist()):
        groups[i] = groups[i - 1] if rewrites[i] else lowest.get(state, first.version + i)
        lowest.setdefault(state, int(groups[i]))
    return Content(first.version, states, groups, rewrites, claims)


def compare_versions(handle: Handle, version: int, other: int) -> bool:
    """Return whether two versions have the same rows and columns, by reading the files that differ.

    Raises:
        FileNotFoundError: Some of these files are missing.
        RunFailedError: They can't be read.
    """
    before, after = handle.log.snapshot(version), handle.log.snapshot(other)
    if before.metadata.schema != after.metadata.schema:
        return False
    spark = handle.spark
    # Delta sets this only where it plans the read itself.
    by_id = {"spark.sql.parquet.fieldId.read.enabled": "true"} if before.metadata.is_mapped_by_id else {}
    try:
        gone, new = (list(_adds(*pair)) for pair in ((before, after), (after, before)))
        with quiet_errors():
            try:
                compare_quickly(spark, after, gone, new)
                return True
            except NotCompared:
                pass
            with session_confs(spark, WHOLE_FILES | by_id):
                return _fingerprint(handle, version, gone) == _fingerprint(handle, other, new)
    except SPARK_ERRORS as error:
        if any(sign in str(error) for sign in MISSING_FILE):
            raise FileNotFoundError(str(error)) from error
        raise RunFailedError(
            f"Versions {version} and {other} can't be compared: {reason_of(error)}."
        ) from None
    except ContentDiffers as error:
        raise RunFailedError(f"Versions {version} and {other} can't be compared: {error}.") from None


def not_in(snapshot: Snapshot, other: Snapshot) -> pa.Array:
    """Return for each live file whether `other` lacks it, with the same deletion vector (bool)."""
    return pc.invert(pc.is_in(file_keys(snapshot.live), value_set=file_keys(other.live)))


def _judge(
    handle: Handle, commit: dict[str, Any], added: int | None, removed: int | None, verify: bool
) -> tuple[str | None, str | None]:
    """Return `Content.rewrites` and `Content.claims` of a commit that says that it changed no data."""
    is_counted = added is not None and removed is not None
    if is_counted and added != removed:
        return None, CONTRADICTED
    if verify:
        try:
            is_same = compare_versions(handle, commit["version"] - 1, commit["version"])
            return (FINGERPRINT, None) if is_same else (None, REFUTED)
        except FileNotFoundError:
            pass
    name = "compaction_kit" if has_tag(commit["user_metadata"]) else commit["operation"]
    proof = stored_proof(commit["user_metadata"])
    if proof is not None and proof.num_rows == added:
        name = PROVED
    return (name, None) if is_counted and name in (*_REWRITES, "compaction_kit", PROVED) else (None, CLAIMED)


def _numbers(schemas: Sequence[Any]) -> np.ndarray:
    """Number the schema of each version: equal schemas have equal numbers, None another one each time."""
    known: list[Any] = []
    numbers: list[int] = []
    for i, schema in enumerate(schemas):
        if schema is None:
            numbers.append(len(schemas) + i)
        elif i and schema is schemas[i - 1]:
            numbers.append(numbers[-1])
        else:
            if schema not in known:
                known.append(schema)
            numbers.append(known.index(schema))
    return np.array(numbers, np.uint64)


def _file_sets(lifetimes: pa.Table, first: int, latest: int) -> np.ndarray:
    """Sum, for each version, random 64-bit numbers of its live files: different files, different sums.

    The chance that different files have the same sum is one in 10^19.
    """
    keys = file_keys(lifetimes).dictionary_encode().indices.to_numpy()
    draws = np.random.default_rng(_SEED).integers(0, 2**64, keys.max(initial=0) + 1, np.uint64)
    return running_totals(lifetimes, draws[keys], first, latest)


def _row_counts(first: Snapshot, lifetimes: pa.Table) -> tuple[dict[int, int | None], dict[int, int | None]]:
    """Return the number of rows that versions added and removed; None where statistics are missing."""
    deleted = pc.fill_null(first.live_files["deletion_vector_cardinality"].combine_chunks(), 0)
    at_first = pc.subtract(first.num_records, deleted).take(lifetimes["row"].combine_chunks())
    records = pc.coalesce(lifetimes["num_records"].combine_chunks(), at_first)
    sum_or_null = ("records", "sum", pc.ScalarAggregateOptions(skip_nulls=False))

    def sums(change: str) -> dict[int, int | None]:
        by_version = pa.table({"version": lifetimes[change], "records": records}).group_by("version")
        columns = by_version.aggregate([sum_or_null]).to_pydict()
        return dict(zip(columns["version"], columns["records_sum"], strict=True))

    return sums("added"), sums("removed")


def _fingerprint(handle: Handle, version: int, adds: Adds) -> Fingerprint:
    """Return the fingerprint of some files, as Spark reads them with the columns of a version."""
    if not adds:
        return Fingerprint(0, (0, 0))
    (content,) = contents(handle, [adds], [version], schema=version)
    return content()


def _adds(snapshot: Snapshot, other: Snapshot) -> Iterator[dict[str, Any]]:
    """Yield the add actions of the live files that a version has and another version lacks, as in the log."""
    files = snapshot.live.filter(not_in(snapshot, other))
    for number in pc.unique(files["source"]).to_pylist():
        rows = set(files.filter(pc.equal(files["source"], number))["row"].to_pylist())
        for row, action in enumerate(snapshot.sources[number].actions()):
            if row in rows:
                add = action["add"]
                yield {"add": {name: add[name] for name in _ADD_FIELDS if name in add}}

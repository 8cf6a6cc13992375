"""Which versions have the same content, and how that is known."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import RunFailedError
from compaction_kit.execute.commits import has_tag
from compaction_kit.execute.jobs import WHOLE_FILES, session_confs
from compaction_kit.execute.jvm import check_jvm, rows_of
from compaction_kit.handle import Handle
from compaction_kit.history.readable import running_totals
from compaction_kit.log.reconcile import file_keys
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.query import MISSING_FILE, SPARK_ERRORS, reason_of
from compaction_kit.session import quiet_errors
from compaction_kit.verify import Fingerprint, fingerprint

IDENTICAL, FINGERPRINT = "identical files", "equal fingerprints"
CLAIMED = "claimed by its writer"
CONTRADICTED = "claimed by its writer, contradicted by the row counts"
REFUTED = "claimed by its writer, refuted by the fingerprints"
# What rewrites files and leaves the rows (DeltaOperations); any writer may call its commit so.
_REWRITES = ("OPTIMIZE", "REORG")
_SEED = 7
# What Delta needs of an add action to read the file.
_ADD_FIELDS = ("path", "partitionValues", "size", "modificationTime", "dataChange", "deletionVector")


@dataclass(frozen=True)
class Content:
    """What is known of the versions' content; a value a version in each array and list.

    Attributes:
        first: The first of the versions.
        states: A number for the set of live files and the schema, the same for the same ones.
        groups: The lowest version whose content is known to be the same.
        rewrites: How it is known that the commit, which replaced files, left the rows as they were:
            what it calls itself, or `FINGERPRINT`; None if it isn't known.
        claims: Of a commit that replaced files and says that it changed no data, without more to
            show for it: `CLAIMED`, `CONTRADICTED` or `REFUTED`; else None.
    """

    first: int
    states: np.ndarray
    groups: np.ndarray
    rewrites: list[str | None]
    claims: list[str | None]

    def evidence(self, one: int, other: int) -> str | None:
        """How it is known that two versions have the same content; None if it isn't.

        Returns:
            "identical files", "equal fingerprints", or "says OPTIMIZE, row counts agree".
        """
        one, other = one - self.first, other - self.first
        if self.groups[one] != self.groups[other]:
            return None
        if self.states[one] == self.states[other]:
            return IDENTICAL
        members = np.flatnonzero(self.groups == self.groups[one])
        names = sorted({name for i in members if (name := self.rewrites[i]) not in (None, FINGERPRINT)})
        return f"says {' and '.join(names)}, row counts agree" if names else FINGERPRINT

    def claim(self, one: int, other: int) -> str | None:
        """What writers claim of two versions that aren't known to have the same content; else None."""
        low, high = sorted((one - self.first, other - self.first))
        steps = range(low + 1, high + 1)
        if self.groups[low] == self.groups[high] or not all(
            self.groups[i] == self.groups[i - 1] or self.claims[i] for i in steps
        ):
            return None
        claims = {self.claims[i] for i in steps}
        return next(claim for claim in (REFUTED, CONTRADICTED, CLAIMED) if claim in claims)


def read_content(handle: Handle, verify: bool = False) -> Content:
    """Find the versions of the same content.

    Two versions have it if they have the same files and the same schema, as after a RESTORE, or if
    each commit from one to the other leaves them so or is one that rewrites files: it says of its
    files that they change no data (dataChange; protocol, "Add File and Remove File"), calls itself
    OPTIMIZE or REORG or is tagged by this kit, and adds as many rows as it removes, by the log's
    statistics. dataChange alone proves nothing: any writer may set it, and Delta doesn't check it.

    Args:
        handle: The table.
        verify: Compare by fingerprint what such a commit replaced, whatever it calls itself, as far as
            the files are there.
    """
    first, lifetimes = handle.log.lifetimes()
    columns = ["version", "operation", "user_metadata", "data_change", "schema"]
    commits = {row["version"]: row for row in handle.log.commits().select(columns).to_pylist()}
    latest = handle.log.segment().version
    files, schemas = _file_sets(lifetimes, first.version, latest), _schemas(first, commits, latest)
    rewrites: list[str | None] = [None] * len(files)
    claims: list[str | None] = [None] * len(files)
    counts = None
    suspects = np.flatnonzero((files[1:] != files[:-1]) & (schemas[1:] == schemas[:-1])) + 1
    for i in suspects.tolist():
        commit = commits.get(first.version + i)
        # Of a commit that isn't there nothing is known.
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


def compare_versions(handle: Handle, one: int, other: int) -> bool:
    """Whether two versions have the same rows and columns: by reading the files that differ.

    Raises:
        FileNotFoundError: Some of these are gone.
        RunFailedError: They can't be read.
        SessionError: The session has no JVM in reach.
    """
    before, after = handle.log.snapshot(one), handle.log.snapshot(other)
    if before.metadata.schema != after.metadata.schema:
        return False
    spark = handle.spark
    check_jvm(spark, "versions can't be compared file by file: compare what queries return instead.")
    # Delta sees to it only where it plans the read itself.
    by_id = {"spark.sql.parquet.fieldId.read.enabled": "true"} if before.metadata.is_mapped_by_id else {}
    try:
        with quiet_errors(), session_confs(spark, WHOLE_FILES | by_id):
            return _fingerprint(handle, before, after) == _fingerprint(handle, after, before)
    except SPARK_ERRORS as error:
        if any(sign in str(error) for sign in MISSING_FILE):
            raise FileNotFoundError(str(error)) from error
        raise RunFailedError(f"Versions {one} and {other} can't be compared: {reason_of(error)}.") from error


def not_in(snapshot: Snapshot, other: Snapshot) -> pa.Array:
    """Which live files of a version another one hasn't, with the same deletion vector: bool."""
    return pc.invert(pc.is_in(file_keys(snapshot.live), value_set=file_keys(other.live)))


def _judge(
    handle: Handle, commit: dict[str, Any], added: int | None, removed: int | None, verify: bool
) -> tuple[str | None, str | None]:
    """What is known of a commit that replaced files and says that it changed no data: rewrite, claim."""
    is_counted = added is not None and removed is not None
    if is_counted and added != removed:
        return None, CONTRADICTED
    # A fingerprint of ours in the commit's userMetadata would be proof too; nothing writes one yet.
    if verify:
        try:
            is_same = compare_versions(handle, commit["version"] - 1, commit["version"])
            return (FINGERPRINT, None) if is_same else (None, REFUTED)
        except FileNotFoundError:
            pass
    name = "compaction_kit" if has_tag(commit["user_metadata"]) else commit["operation"]
    return (name, None) if is_counted and name in (*_REWRITES, "compaction_kit") else (None, CLAIMED)


def _schemas(first: Snapshot, commits: dict[int, dict[str, Any]], latest: int) -> np.ndarray:
    """A number for each version's schema, the same for the same one."""
    known: list[Any] = [first.metadata.schema]
    numbers = [0]
    for version in range(first.version + 1, latest + 1):
        text = commits.get(version, {}).get("schema")
        if text is None:
            numbers.append(numbers[-1])
            continue
        try:
            schema = json.loads(text)
        except (ValueError, RecursionError):
            # A version that can't be read, and a later one that can.
            schema = text
        if schema not in known:
            known.append(schema)
        numbers.append(known.index(schema))
    return np.array(numbers, np.uint64)


def _file_sets(lifetimes: pa.Table, first: int, latest: int) -> np.ndarray:
    """The sum of 64-bit numbers drawn for each live file: that of other files is another one.

    That it isn't has a chance of one in 10^19.
    """
    keys = file_keys(lifetimes).dictionary_encode().indices.to_numpy()
    draws = np.random.default_rng(_SEED).integers(0, 2**64, keys.max(initial=0) + 1, np.uint64)
    return running_totals(lifetimes, draws[keys], first, latest)


def _row_counts(first: Snapshot, lifetimes: pa.Table) -> tuple[dict[int, int | None], dict[int, int | None]]:
    """The rows that versions added and removed; None where a file's statistics don't say."""
    deleted = pc.fill_null(first.live_files["deletion_vector_cardinality"].combine_chunks(), 0)
    at_first = pc.subtract(first.num_records, deleted).take(lifetimes["row"].combine_chunks())
    records = pc.coalesce(lifetimes["num_records"].combine_chunks(), at_first)
    sum_or_null = ("records", "sum", pc.ScalarAggregateOptions(skip_nulls=False))

    def sums(change: str) -> dict[int, int | None]:
        by_version = pa.table({"version": lifetimes[change], "records": records}).group_by("version")
        columns = by_version.aggregate([sum_or_null]).to_pydict()
        return dict(zip(columns["version"], columns["records_sum"], strict=True))

    return sums("added"), sums("removed")


def _fingerprint(handle: Handle, snapshot: Snapshot, other: Snapshot) -> Fingerprint:
    """The fingerprint of the files that a version has and another one hasn't."""
    adds = list(_adds(snapshot, not_in(snapshot, other)))
    if not adds:
        return Fingerprint(0, (0, 0))
    return fingerprint(rows_of(handle.spark, handle.path, adds, snapshot.version))


def _adds(snapshot: Snapshot, chosen: pa.Array) -> Iterator[dict[str, Any]]:
    """The add actions of some live files, as the log writes them."""
    files = snapshot.live.filter(chosen)
    for number in pc.unique(files["source"]).to_pylist():
        rows = set(files.filter(pc.equal(files["source"], number))["row"].to_pylist())
        for row, action in enumerate(snapshot.sources[number].actions()):
            if row in rows:
                add = action["add"]
                yield {"add": {name: add[name] for name in _ADD_FIELDS if name in add}}

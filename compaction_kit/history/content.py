"""Which versions have the same content, and how that is known."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from compaction_kit.errors import RunFailedError
from compaction_kit.execute.commits import has_tag
from compaction_kit.execute.jobs import WHOLE_FILES, session_confs
from compaction_kit.execute.jvm import check_jvm, rows_of
from compaction_kit.log import TransactionLog
from compaction_kit.log.reconcile import action_keys
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.query import MISSING_FILE, SPARK_ERRORS, reason_of
from compaction_kit.session import quiet_errors
from compaction_kit.verify import Fingerprint, fingerprint

IDENTICAL, FINGERPRINT = "identical files", "equal fingerprints"
CLAIMED = "claimed by its writer"
CONTRADICTED = "claimed by its writer, contradicted by the row counts"
REFUTED = "claimed by its writer, refuted by the fingerprints"
# Whether two versions have the same rows, by reading what differs; None where files are gone.
Compare = Callable[[int, int], bool | None]
# What rewrites files and leaves the rows (DeltaOperations); any writer may call its commit so.
_REWRITES = ("OPTIMIZE", "REORG")
_SEED = 7
# What Delta needs of an add action to read the file.
_ADD_FIELDS = ("path", "partitionValues", "size", "modificationTime", "dataChange", "deletionVector")


@dataclass(frozen=True)
class Content:
    """What is known of the versions' content; a value a version in each array.

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


def read_content(log: TransactionLog, compare: Compare | None = None) -> Content:
    """Find the versions of the same content.

    Two versions have it if they have the same files and the same schema, as after a RESTORE, or if
    each commit from one to the other leaves them so or is one that rewrites files: it says of its
    files that they change no data (dataChange; protocol, "Add File and Remove File"), calls itself
    OPTIMIZE or REORG or is tagged by this kit, and adds as many rows as it removes, by the log's
    statistics. dataChange alone proves nothing: any writer may set it, and Delta doesn't check it.

    Args:
        log: The table's log.
        compare: Compares what such a commit replaced, whatever it calls itself.
    """
    first, lifetimes = log.lifetimes()
    commits = log.commits()
    latest = log.segment().version
    states = _states(first, commits, lifetimes, latest)
    schemas = states[:, 1]
    told = {row["version"]: row for row in commits.drop_columns(["parameters", "metrics"]).to_pylist()}
    suspects = [
        i
        for i in range(1, len(states))
        if schemas[i] == schemas[i - 1]
        and states[i, 0] != states[i - 1, 0]
        # A commit that isn't there tells nothing.
        and not told.get(first.version + i, {"data_change": True})["data_change"]
    ]
    rewrites: list[str | None] = [None] * len(states)
    claims: list[str | None] = [None] * len(states)
    if suspects:
        added, removed = _row_counts(first, lifetimes, latest)
        for i in suspects:
            version = first.version + i
            counts = (added[i], removed[i])
            rewrites[i], claims[i] = _judge(told[version], version, counts, compare)
    numbers = np.unique(states, axis=0, return_inverse=True)[1].reshape(-1)
    groups = np.arange(first.version, latest + 1)
    lowest: dict[int, int] = {}
    for i, number in enumerate(numbers.tolist()):
        groups[i] = groups[i - 1] if rewrites[i] else lowest.get(number, first.version + i)
        lowest.setdefault(number, int(groups[i]))
    return Content(first.version, numbers, groups, rewrites, claims)


def compare_versions(spark: SparkSession, table: Path, log: TransactionLog, one: int, other: int) -> bool:
    """Whether two versions have the same rows and columns: by reading the files that differ.

    Raises:
        FileNotFoundError: Some of these are gone.
        RunFailedError: They can't be read.
        SessionError: The session has no JVM in reach.
    """
    sides = [log.snapshot(version) for version in (one, other)]
    if sides[0].metadata.schema != sides[1].metadata.schema:
        return False
    check_jvm(spark, "versions can't be compared file by file: compare what queries return instead.")
    keys = [action_keys(side.live) for side in sides]
    only = [pc.invert(pc.is_in(keys[i], value_set=keys[1 - i])) for i in (0, 1)]
    # Delta sees to it only where it plans the read itself.
    by_id = {"spark.sql.parquet.fieldId.read.enabled": "true"} if sides[0].metadata.is_mapped_by_id else {}
    try:
        with quiet_errors(), session_confs(spark, WHOLE_FILES | by_id):
            prints = [
                _fingerprint(spark, table, list(_adds(side, differs)), side.version)
                for side, differs in zip(sides, only, strict=True)
            ]
    except SPARK_ERRORS as error:
        if any(sign in str(error) for sign in MISSING_FILE):
            raise FileNotFoundError(str(error)) from error
        raise RunFailedError(f"Versions {one} and {other} can't be compared: {reason_of(error)}.") from error
    return prints[0] == prints[1]


def comparer(spark: SparkSession, table: Path, log: TransactionLog) -> Compare:
    """What compares versions as `compare_versions` does, and can't where files are gone."""

    def compare(one: int, other: int) -> bool | None:
        try:
            return compare_versions(spark, table, log, one, other)
        except FileNotFoundError:
            return None

    return compare


def _judge(
    commit: dict[str, Any], version: int, counts: tuple[int | None, int | None], compare: Compare | None
) -> tuple[str | None, str | None]:
    """What is known of a commit that replaced files and says that it changed no data: rewrite, claim."""
    added, removed = counts
    if added is not None and removed is not None and added != removed:
        return None, CONTRADICTED
    # A fingerprint of ours in the commit's userMetadata would be proof too; nothing writes one yet.
    same = compare(version - 1, version) if compare is not None else None
    if same is not None:
        return (FINGERPRINT, None) if same else (None, REFUTED)
    name = "compaction_kit" if has_tag(commit["user_metadata"]) else commit["operation"]
    is_rewrite = name == "compaction_kit" or name in _REWRITES
    return (name, None) if is_rewrite and added is not None and removed is not None else (None, CLAIMED)


def _states(first: Snapshot, commits: pa.Table, lifetimes: pa.Table, latest: int) -> np.ndarray:
    """For each version a number for its set of live files, and one for its schema."""
    files = _file_sets(lifetimes, first.version, latest)
    return np.column_stack([files, np.array(_schemas(first, commits, latest), dtype=np.uint64)])


def _schemas(first: Snapshot, commits: pa.Table, latest: int) -> list[int]:
    """A number for each version's schema, the same for the same one."""
    known: list[Any] = [first.metadata.schema]
    set_by = {
        version: schema
        for version, schema in zip(commits["version"].to_pylist(), commits["schema"].to_pylist(), strict=True)
        if schema is not None and version > first.version
    }
    numbers, current = [], 0
    for version in range(first.version, latest + 1):
        if version in set_by:
            current = _position(known, _schema(set_by[version]))
        numbers.append(current)
    return numbers


def _schema(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # A version that can't be read, and a later one that can.
        return text


def _position(known: list[Any], one: Any) -> int:
    if one not in known:
        known.append(one)
    return known.index(one)


def _file_sets(lifetimes: pa.Table, first: int, latest: int) -> np.ndarray:
    """The sum of 64-bit numbers drawn for each live file: that of other files is another one.

    That it isn't has a chance of one in 10^19.
    """
    keys = action_keys(lifetimes).dictionary_encode().indices.to_numpy()
    draws = np.random.default_rng(_SEED).integers(0, 2**64, keys.max(initial=0) + 1, np.uint64)[keys]
    steps = np.zeros(latest - first + 2, dtype=np.uint64)
    np.add.at(steps, lifetimes["added"].to_numpy() - first, draws)
    ended = lifetimes["removed"].is_valid().to_numpy()
    np.subtract.at(steps, lifetimes["removed"].drop_null().to_numpy() - first, draws[ended])
    return np.cumsum(steps, dtype=np.uint64)[:-1]


def _row_counts(
    first: Snapshot, lifetimes: pa.Table, latest: int
) -> tuple[list[int | None], list[int | None]]:
    """The rows that each version added and removed; None where a file's statistics don't say."""
    deleted = pc.fill_null(first.live_files["deletion_vector_cardinality"].combine_chunks(), 0)
    at_first = pc.subtract(first.num_records, deleted).take(lifetimes["row"].combine_chunks())
    records = pc.coalesce(lifetimes["num_records"].combine_chunks(), at_first)
    added, removed = (_sums(lifetimes[name], records, first.version, latest) for name in ("added", "removed"))
    return added, removed


def _sums(versions: pa.ChunkedArray, records: pa.Array, first: int, latest: int) -> list[int | None]:
    sums = pa.table({"version": versions, "records": records}).group_by("version")
    option = pc.ScalarAggregateOptions(skip_nulls=False)
    table = sums.aggregate([("records", "sum", option)])
    known = dict(zip(table["version"].to_pylist(), table["records_sum"].to_pylist(), strict=True))
    return [known.get(version, 0) for version in range(first, latest + 1)]


def _fingerprint(spark: SparkSession, table: Path, adds: list[dict[str, Any]], version: int) -> Fingerprint:
    return fingerprint(rows_of(spark, table, adds, version)) if adds else Fingerprint(0, (0, 0))


def _adds(snapshot: Snapshot, chosen: pa.Array) -> Iterator[dict[str, Any]]:
    """The add actions of some live files, as the log writes them."""
    files = snapshot.live.filter(chosen)
    for number in pc.unique(files["source"]).to_pylist():
        rows = set(files.filter(pc.equal(files["source"], number))["row"].to_pylist())
        for row, action in enumerate(snapshot.sources[number].actions()):
            if row in rows:
                add = action["add"]
                yield {"add": {name: add[name] for name in _ADD_FIELDS if name in add}}

"""Compare a symlink manifest with the log: file by file, partition by partition, version by version."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compaction_kit.folder import is_file
from compaction_kit.interop.check import DELETED, LIVE, MISSING, STALE, ManifestCheck
from compaction_kit.interop.damage import Damage, Lives, measure_damage
from compaction_kit.interop.manifest import PROPERTY, read_manifest, refusal
from compaction_kit.interop.parquet_folder import partition_folders, partition_values
from compaction_kit.log.paths import folder_of, places
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.table import Table


def check_manifest(table: Table) -> ManifestCheck:
    """Compare a table's symlink manifest with its log.

    Args:
        table: The table.

    Raises:
        InvalidArgumentError: There is no manifest.
    """
    lines = read_manifest(table)
    listed = lines.group_by(["partition", "path"]).aggregate([])
    snapshot = table.log.snapshot()
    first, lifetimes = table.log.lifetimes()
    lifetimes = _until(lifetimes, snapshot.version)
    live = _live_files(table.path, snapshot)
    lives = _with_partitions(lifetimes, live, snapshot)
    files = _compare(table.path, listed, live, lives)
    versions = np.arange(first.version, snapshot.version + 1)
    # What a manifest lists it lists without a vector.
    whole = pc.is_null(lives["deletion_vector_id"])
    is_listed = pc.is_in(_keys(lives), value_set=_keys(listed))
    lives = lives.append_column("listed", is_listed).append_column("whole", pc.and_(whole, is_listed))
    num_live, hits = _by_version(lives, versions)
    partitions = _compare_partitions(lives, files, versions)
    return ManifestCheck(
        table=table.name,
        latest=snapshot.version,
        version=_newest(num_live, hits, len(listed), versions),
        partitions=partitions,
        files=files,
        num_repeated=len(lines) - len(listed),
        by_version=pa.table({"version": versions, "num_live": num_live, "num_listed": hits}),
        damage=_damage(table, first.version, lives, partitions, files),
        kept=snapshot.metadata.configuration.get(PROPERTY) == "true",
        refusal=refusal(snapshot),
    )


def _until(lifetimes: pa.Table, version: int) -> pa.Table:
    """The lifetimes as of a version: others may have committed since it was read."""
    known = lifetimes.filter(pc.less_equal(lifetimes["added"], version))
    later = pc.greater(known["removed"], version)
    removed = pc.if_else(pc.fill_null(later, True), pa.scalar(None, pa.int64()), known["removed"])
    return known.drop_columns("removed").append_column("removed", removed)


def _live_files(folder: Path, snapshot: Snapshot) -> pa.Table:
    """Path and partition (as GENERATE names its folder) of each live file, num_rows and num_deleted."""
    names = [f"partition.{name}" for name in snapshot.metadata.partition_columns]
    files = snapshot.live_files
    return pa.table(
        {
            "partition": partition_folders(files.select(names)),
            "path": places(files["path"], folder),
            "num_rows": snapshot.num_records,
            "num_deleted": pc.fill_null(files["deletion_vector_cardinality"], 0),
        }
    )


def _with_partitions(lifetimes: pa.Table, live: pa.Table, snapshot: Snapshot) -> pa.Table:
    """The lifetimes with their partition.

    The log says the partition of the live files; that of others is told by the folder that they were in.
    """
    paths = lifetimes["path"].combine_chunks()
    columns = snapshot.metadata.partition_columns
    folders = pa.array([path.rpartition("/")[0] for path in paths.to_pylist()], pa.string())
    encoded = folders.dictionary_encode()
    known = pa.array([_canonical(one, columns) for one in encoded.dictionary.to_pylist()], pa.string())
    from_log = live["partition"].take(pc.index_in(paths, value_set=live["path"].combine_chunks()))
    partitions = pc.coalesce(from_log, known.take(encoded.indices))
    return lifetimes.append_column("partition", partitions)


def _canonical(folder: str, columns: tuple[str, ...]) -> str:
    """A folder as Delta would name it; as it is if it doesn't tell all partition values."""
    values = partition_values(folder) if columns else {}
    if values is None or tuple(values) != columns:
        return folder if columns else ""
    return folder_of(columns, tuple(values.values()))


def _keys(files: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(files["partition"], files["path"], "\n")


def _compare(folder: Path, listed: pa.Table, live: pa.Table, lives: pa.Table) -> pa.Table:
    """`ManifestCheck.files`."""
    live_keys, listed_keys = _keys(live), _keys(listed)
    marked = pc.if_else(pc.greater(live["num_deleted"], 0), DELETED, LIVE)
    state = pc.if_else(pc.is_in(live_keys, value_set=listed_keys), marked, MISSING)
    stale = listed.filter(pc.invert(pc.is_in(listed_keys, value_set=live_keys)))
    stale = stale.append_column("state", pa.array([STALE] * len(stale), pa.string()))
    files = pa.concat_tables([live.append_column("state", state), stale], promote_options="default")
    paths = [folder / path for path in files["path"].to_pylist()]
    on_disk = pa.array([is_file(path) for path in paths], pa.bool_())
    rows = files["num_rows"].combine_chunks()
    unknown = pc.and_(pc.is_null(rows), on_disk)
    asked = [path for path, ask in zip(paths, unknown.to_pylist(), strict=True) if ask]
    rows = pc.replace_with_mask(rows, unknown, pa.array(_footer_rows(asked), pa.int64()))
    # A file may have been live several times.
    spans = lives.group_by("path").aggregate([("added", "min"), ("removed", "max")])
    known = spans.take(pc.index_in(files["path"], value_set=spans["path"].combine_chunks()))
    is_stale = pc.equal(files["state"], STALE)
    return pa.table(
        {
            "path": files["path"],
            "partition": files["partition"],
            "state": files["state"],
            "on_disk": on_disk,
            "num_rows": rows,
            "num_deleted": pc.fill_null(files["num_deleted"], 0),
            "added": known["added_min"],
            "removed": pc.if_else(is_stale, known["removed_max"], pa.scalar(None, pa.int64())),
        }
    ).sort_by([("partition", "ascending"), ("path", "ascending")])


def _footer_rows(paths: Iterable[Path]) -> list[int | None]:
    def count(path: Path) -> int | None:
        try:
            return pq.read_metadata(path).num_rows
        except (OSError, pa.ArrowException):
            return None

    with ThreadPoolExecutor() as pool:
        return list(pool.map(count, paths))


def _by_version(lives: pa.Table, versions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many files are live at each version, and how many of them are listed."""
    added = lives["added"].to_numpy() - versions[0]
    removed = pc.fill_null(lives["removed"], versions[-1] + 1).to_numpy() - versions[0]
    listed = lives["whole"].to_numpy()
    length = len(versions) + 1

    def running(which: np.ndarray) -> np.ndarray:
        begun, ended = (np.bincount(at[which], minlength=length) for at in (added, removed))
        return np.cumsum(begun - ended)[:-1]

    return running(np.ones(len(added), dtype=bool)), running(listed)


def _newest(num_live: np.ndarray, hits: np.ndarray, num_listed: int, versions: np.ndarray) -> int | None:
    """The newest version whose live files are exactly those listed."""
    exact = np.flatnonzero((num_live == hits) & (hits == num_listed))
    return int(versions[exact[-1]]) if len(exact) else None


def _compare_partitions(lives: pa.Table, files: pa.Table, versions: np.ndarray) -> pa.Table:
    """`ManifestCheck.partitions`."""
    state = files["state"]
    marks = files.select(["partition"])
    marks = marks.append_column("listed", pc.not_equal(state, MISSING).cast(pa.int64()))
    marks = marks.append_column("live", pc.not_equal(state, STALE).cast(pa.int64()))
    marks = marks.append_column("differs", pc.not_equal(state, LIVE).cast(pa.int64()))
    sums = [("listed", "sum"), ("live", "sum"), ("differs", "sum")]
    groups = marks.group_by("partition").aggregate(sums).sort_by("partition").to_pylist()
    encoded = lives["partition"].combine_chunks().dictionary_encode()
    order = np.argsort(encoded.indices.to_numpy(), kind="stable")
    bounds = np.cumsum(np.r_[0, np.bincount(encoded.indices.to_numpy(), minlength=len(encoded.dictionary))])
    number = {name: i for i, name in enumerate(encoded.dictionary.to_pylist())}

    def newest(partition: str, num_listed: int) -> int | None:
        i = number.get(partition)
        mine = order[:0] if i is None else order[bounds[i] : bounds[i + 1]]
        return _newest(*_by_version(lives.take(pa.array(mine)), versions), num_listed, versions)

    rows = []
    for group in groups:
        name, listed, matches = group["partition"], group["listed_sum"], group["differs_sum"] == 0
        rows.append(
            {
                "partition": name,
                "num_listed": listed,
                "num_live": group["live_sum"],
                "version": int(versions[-1]) if matches else newest(name, listed),
                "matches": matches,
            }
        )
    schema = [("partition", pa.string()), ("num_listed", pa.int64()), ("num_live", pa.int64())]
    return pa.Table.from_pylist(rows, pa.schema([*schema, ("version", pa.int64()), ("matches", pa.bool_())]))


def _damage(table: Table, first: int, lives: pa.Table, partitions: pa.Table, files: pa.Table) -> Damage:
    """The damage in the partitions that differ."""
    differing = partitions.filter(pc.invert(partitions["matches"]))["partition"]
    files = files.filter(pc.is_in(files["partition"], value_set=differing))
    lives = lives.filter(pc.is_in(lives["partition"], value_set=differing))
    keys = _keys(lives).combine_chunks().dictionary_encode().indices.to_numpy()
    last = np.zeros(len(keys), dtype=bool)
    last[len(keys) - 1 - np.unique(keys[::-1], return_index=True)[1]] = True
    net = pc.subtract(files["num_rows"], files["num_deleted"])
    rows = pc.fill_null(net.take(pc.index_in(_keys(lives), value_set=_keys(files))), 0)
    commits = table.log.commits()
    quiet = pc.and_(pc.invert(commits["data_change"]), pc.greater(commits["version"], first))
    measured = measure_damage(
        Lives(
            lives["added"].to_numpy(),
            pc.fill_null(lives["removed"], -1).to_numpy(),
            lives["partition"].combine_chunks().dictionary_encode().indices.to_numpy(),
            rows.to_numpy(),
            lives["listed"].to_numpy() & last,
        ),
        commits.filter(quiet)["version"].to_numpy(),
    )
    # What the log doesn't tell of, or only as deleted by a vector.
    unknown = files.filter(pc.is_null(files["added"]))["num_rows"]
    deleted = files.filter(pc.equal(files["state"], DELETED))["num_deleted"]
    more = sum(pc.sum(rows).as_py() or 0 for rows in (unknown, deleted))
    return replace(measured, outdated=measured.outdated + more)

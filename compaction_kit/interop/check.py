"""Compare a symlink manifest with the log: file by file, partition by partition, version by version."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure

from compaction_kit import plots
from compaction_kit.interop.damage import Damage, measure_damage
from compaction_kit.interop.manifest import PROPERTY, read_manifest, refusal
from compaction_kit.interop.parquet_folder import partition_folders, partition_values, read_footers
from compaction_kit.log.paths import folder_of, places
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.records import Record
from compaction_kit.storage import Store
from compaction_kit.table import Table
from compaction_kit.text import format_count

LIVE, DELETED, MISSING, STALE = (
    "listed and live",
    "listed, live with rows deleted",
    "live, not listed",
    "listed, not live",
)
_NEVER = pa.scalar(None, pa.int64())


@dataclass(frozen=True, repr=False)
class ManifestCheck(Record):
    """A symlink manifest compared with the log; made by `check_manifest`.

    Attributes:
        table: The table's name.
        latest: The table's version.
        version: The newest version whose live files are exactly the listed ones; None if there is none.
        partitions: One row per partition with listed or live files: partition (its folder), num_listed,
            num_live, version (the newest whose live files of the partition are exactly the listed ones;
            null for none), matches.
        files: One row per listed or live file: path, partition, state ("listed and live"; "listed, live
            with rows deleted": by a deletion vector, which a manifest can't list; "live, not listed";
            "listed, not live"), on_disk, num_rows (with deleted rows; null if neither the log nor the
            footer has it), num_deleted (by a deletion vector), added and removed (the first version that
            added it and the last that removed it; null if the log doesn't have it, or the file is live).
        num_repeated: The number of lines that repeat another line of the same partition.
        by_version: One row per version: version, num_live, num_listed (the number of its live files that
            are listed).
        damage: The rows that a reader reads twice, misses, or reads although they are outdated.
        kept: Whether Delta keeps the manifest up to date.
        refusal: Why Delta would refuse to generate a manifest now; None if it wouldn't.
    """

    table: str
    latest: int
    version: int | None
    partitions: pa.Table
    files: pa.Table
    num_repeated: int
    by_version: pa.Table
    damage: Damage
    kept: bool
    refusal: str | None

    @property
    def matches(self) -> bool:
        """Whether a reader of the manifest reads exactly the files of the latest version."""
        return self.count(LIVE) == len(self.files) and not self.num_gone and not self.num_repeated

    @property
    def same_rows(self) -> bool:
        """Whether a reader of the manifest gets the latest version's rows, even if from older files."""
        known = self.partitions["version"].null_count == 0
        return known and not self.num_gone and not self.damage

    @property
    def elsewhere(self) -> list[str]:
        """Listed files that are neither live nor in the table's folder."""
        paths = self.files.filter(pc.equal(self.files["state"], STALE))["path"].to_pylist()
        return [path for path in paths if path.startswith("/") or "://" in path]

    @cached_property
    def num_gone(self) -> int:
        """The number of listed files that are missing on disk, so that a reader fails."""
        listed = pc.not_equal(self.files["state"], MISSING)
        return pc.sum(pc.and_(listed, pc.invert(self.files["on_disk"]))).as_py() or 0

    def count(self, state: str) -> int:
        """Count the files in a state."""
        return pc.sum(pc.equal(self.files["state"], state)).as_py() or 0

    def facts(self) -> dict[str, str]:
        """Return the listed version, the differences, and what readers get: name and value."""
        kept = f"yes, by {PROPERTY}" if self.kept else "no"
        facts = {"manifest": self._which(), "kept by Delta": kept}
        if self.matches:
            return facts
        files = {state: self.count(state) for state in (LIVE, DELETED, MISSING, STALE)}
        files |= {"listed, missing on disk": self.num_gone, "listed twice": self.num_repeated}
        facts |= {name: format_count(count, "file") for name, count in files.items() if count}
        if self.elsewhere:
            facts["listed in another folder"] = (
                f"{format_count(len(self.elsewhere), 'file')}, such as {self.elsewhere[0]}: the table may "
                "have been moved or copied"
            )
        if self.num_gone:
            facts["its readers"] = "fail, as files are missing"
        elif self.same_rows:
            facts["its readers"] = "get the same rows, from files that VACUUM will delete"
        else:
            facts["its readers"] = "get other rows"
            rows = {
                "rows read twice": self.damage.twice,
                "rows missed": self.damage.missed,
                "rows of outdated files": self.damage.outdated,
            }
            facts |= {name: f"{count:,}" for name, count in rows.items() if count}
        again = "generate it again with interop.generate_manifest(table)"
        facts["what to do"] = (
            f"Delta refuses to generate a manifest: {self.refusal}" if self.refusal else again
        )
        return facts

    def parts(self) -> tuple[object, ...]:
        """Return the facts and the figure."""
        return self.facts(), self.plot()

    def explain(self) -> str:
        """Explain which version the manifest lists, what differs, and what its readers get."""
        return self.summary()

    def plot(self) -> Figure:
        """Draw how many of each version's live files are listed."""
        return plots.manifest(self.by_version, self.version)

    def _which(self) -> str:
        now = f"the table is at version {self.latest}"
        if self.matches:
            count = format_count(self.count(LIVE), "live file")
            return f"lists the {count} of version {self.latest}, the latest"
        if self.version == self.latest:
            return f"lists the files of version {self.version}, the latest"
        if self.version is not None:
            return f"lists the files of version {self.version}, and {now}"
        versions = self.partitions["version"]
        if len(versions) == 1:
            return f"lists the files of no version in the log, and {now}"
        known = sorted(set(versions.drop_null().to_pylist()))
        mixed = [f"version{'s' * (len(known) > 1)} {', '.join(map(str, known))}"] if known else []
        if versions.null_count:
            mixed.append(f"no version in {format_count(versions.null_count, 'partition')}")
        return f"lists different versions in its partitions ({'; '.join(mixed)}), and {now}"


def check_manifest(table: Table) -> ManifestCheck:
    """Compare a table's symlink manifest with its log.

    Args:
        table: The table.

    Raises:
        InvalidArgumentError: There is no manifest.

    Examples:
        >>> table = ck.open_table("data/flights")
        >>> ck.interop.generate_manifest(table)
        >>> ck.interop.read_manifest(table).schema
        partition: string
        path: string
        size_bytes: int64
        >>> check = ck.interop.check_manifest(table)
        >>> print(check.explain())
        manifest         lists the 1,095 live files of version 365, the latest
        kept by Delta    no
        >>> check.partitions.schema
        partition: string
        num_listed: int64
        num_live: int64
        version: int64
        matches: bool
    """
    lines = read_manifest(table)
    listed = _with_keys(lines.group_by(["partition", "path"]).aggregate([]))
    snapshot = table.log.snapshot()
    first, lifetimes = table.log.lifetimes()
    live = _live_files(table.handle.store, snapshot)
    lives = _lives(lifetimes, snapshot, live, listed)
    files = _files(table.handle.store, listed, live, lives)
    versions = np.arange(first.version, snapshot.version + 1)
    by_version = _by_version(lives, versions)
    commits = table.log.commits()
    rewriting = pc.and_(pc.invert(commits["data_change"]), pc.greater(commits["version"], first.version))
    return ManifestCheck(
        table=table.name,
        latest=snapshot.version,
        version=_newest(by_version, len(listed)),
        partitions=_partitions(lives, files, versions),
        files=files.drop_columns("key"),
        num_repeated=len(lines) - len(listed),
        by_version=by_version,
        damage=_damage(lives, files, commits.filter(rewriting)["version"].to_numpy()),
        kept=snapshot.metadata.configuration.get(PROPERTY) == "true",
        refusal=refusal(snapshot),
    )


def _with_keys(files: pa.Table) -> pa.Table:
    return files.append_column("key", pc.binary_join_element_wise(files["partition"], files["path"], "\n"))


def _live_files(store: Store, snapshot: Snapshot) -> pa.Table:
    files = snapshot.live_files
    names = [f"partition.{name}" for name in snapshot.metadata.partition_columns]
    return _with_keys(
        pa.table(
            {
                "partition": partition_folders(files.select(names)),
                "path": places(files["path"], store),
                "num_rows": snapshot.num_records,
                "num_deleted": pc.fill_null(files["deletion_vector_cardinality"], 0),
            }
        )
    )


def _lives(lifetimes: pa.Table, snapshot: Snapshot, live: pa.Table, listed: pa.Table) -> pa.Table:
    """Return the spans of versions in which files were live, with their partitions, and if they are listed.

    The log has the partitions of live files; those of others are taken from their folders.
    """
    # There may be new commits since the snapshot was read.
    lifetimes = lifetimes.filter(pc.less_equal(lifetimes["added"], snapshot.version))
    removed = pc.if_else(pc.less_equal(lifetimes["removed"], snapshot.version), lifetimes["removed"], _NEVER)
    paths = lifetimes["path"].combine_chunks()
    folders = pa.array([path.rpartition("/")[0] for path in paths.to_pylist()], pa.string())
    encoded, columns = folders.dictionary_encode(), snapshot.metadata.partition_columns
    names = [_partition(folder, columns) if columns else "" for folder in encoded.dictionary.to_pylist()]
    from_log = live["partition"].take(pc.index_in(paths, value_set=live["path"].combine_chunks()))
    partitions = pc.coalesce(from_log, pa.array(names, pa.string()).take(encoded.indices))
    lives = _with_keys(
        pa.table({"partition": partitions, "path": paths, "added": lifetimes["added"], "removed": removed})
    )
    is_listed = pc.is_in(lives["key"], value_set=listed["key"])
    # A reader of the manifest ignores deletion vectors.
    whole = pc.and_(is_listed, pc.is_null(lifetimes["deletion_vector_id"]))
    return lives.append_column("listed", is_listed).append_column("whole", whole)


def _partition(folder: str, columns: tuple[str, ...]) -> str:
    """Return a folder as Delta would name it; unchanged if it lacks partition values."""
    values = partition_values(folder) or {}
    return folder_of(columns, tuple(values.values())) if tuple(values) == columns else folder


def _files(store: Store, listed: pa.Table, live: pa.Table, lives: pa.Table) -> pa.Table:
    """Make `ManifestCheck.files`, with keys."""
    marked = pc.if_else(pc.greater(live["num_deleted"], 0), DELETED, LIVE)
    state = pc.if_else(pc.is_in(live["key"], value_set=listed["key"]), marked, MISSING)
    stale = listed.filter(pc.invert(pc.is_in(listed["key"], value_set=live["key"])))
    stale = stale.append_column("state", pa.array([STALE] * len(stale), pa.string()))
    files = pa.concat_tables([live.append_column("state", state), stale], promote_options="default")
    paths = files["path"].to_pylist()
    on_disk = pa.array([store.is_file(path) for path in paths], pa.bool_())
    num_rows = files["num_rows"].combine_chunks()
    unknown = pc.and_(pc.is_null(num_rows), on_disk)
    footers = read_footers(store, [path for path, ask in zip(paths, unknown.to_pylist(), strict=True) if ask])
    counts = [None if footer is None else footer.num_rows for footer in footers]
    # A file may have been live several times.
    spans = lives.group_by("path").aggregate([("added", "min"), ("removed", "max")])
    known = spans.take(pc.index_in(files["path"], value_set=spans["path"].combine_chunks()))
    return pa.table(
        {
            "path": files["path"],
            "partition": files["partition"],
            "state": files["state"],
            "on_disk": on_disk,
            "num_rows": pc.replace_with_mask(num_rows, unknown, pa.array(counts, pa.int64())),
            "num_deleted": pc.fill_null(files["num_deleted"], 0),
            "added": known["added_min"],
            "removed": pc.if_else(pc.equal(files["state"], STALE), known["removed_max"], _NEVER),
            "key": files["key"],
        }
    ).sort_by([("partition", "ascending"), ("path", "ascending")])


def _by_version(lives: pa.Table, versions: np.ndarray) -> pa.Table:
    """Make `ManifestCheck.by_version`."""
    added = lives["added"].to_numpy() - versions[0]
    removed = pc.fill_null(lives["removed"], versions[-1] + 1).to_numpy() - versions[0]

    def live_at_each(files: np.ndarray) -> np.ndarray:
        begun, ended = (np.bincount(at[files], minlength=len(versions) + 1) for at in (added, removed))
        return np.cumsum(begun - ended)[:-1]

    num_live = live_at_each(np.ones(len(lives), dtype=bool))
    num_listed = live_at_each(lives["whole"].to_numpy())
    return pa.table({"version": versions, "num_live": num_live, "num_listed": num_listed})


def _newest(by_version: pa.Table, num_listed: int) -> int | None:
    """Return the newest version whose live files are exactly the listed ones."""
    all_listed = pc.equal(by_version["num_live"], by_version["num_listed"])
    exact = by_version.filter(pc.and_(all_listed, pc.equal(by_version["num_listed"], num_listed)))
    return pc.max(exact["version"]).as_py()


def _partitions(lives: pa.Table, files: pa.Table, versions: np.ndarray) -> pa.Table:
    """Make `ManifestCheck.partitions`."""
    marks = pa.table(
        {
            "partition": files["partition"],
            "num_listed": pc.not_equal(files["state"], MISSING).cast(pa.int64()),
            "num_live": pc.not_equal(files["state"], STALE).cast(pa.int64()),
            "matches": pc.equal(files["state"], LIVE),
        }
    )
    sums = [("num_listed", "sum"), ("num_live", "sum"), ("matches", "all")]
    groups = marks.group_by("partition").aggregate(sums).rename_columns(marks.column_names)
    groups = groups.sort_by("partition")
    numbered = lives.append_column("row", pa.array(np.arange(len(lives))))
    rows = numbered.group_by("partition").aggregate([("row", "list")])
    rows_of = dict(zip(rows["partition"].to_pylist(), rows["row_list"], strict=True))

    def newest(partition: str, num_listed: int, matches: bool) -> int | None:
        if matches:
            return int(versions[-1])
        own = lives.take(rows_of[partition].values) if partition in rows_of else lives.slice(0, 0)
        return _newest(_by_version(own, versions), num_listed)

    arguments = (groups[name].to_pylist() for name in ("partition", "num_listed", "matches"))
    version = pa.array(map(newest, *arguments), pa.int64())
    return groups.add_column(3, "version", version)


def _damage(lives: pa.Table, files: pa.Table, rewriting: np.ndarray) -> Damage:
    # A listed file that was live several times is read once.
    last = lives.group_by("key").aggregate([("added", "max")])
    last_added = last["added_max"].take(pc.index_in(lives["key"], value_set=last["key"].combine_chunks()))
    listed = pc.and_(lives["listed"], pc.equal(lives["added"], last_added))
    net = pc.subtract(files["num_rows"], files["num_deleted"])
    num_rows = pc.fill_null(net.take(pc.index_in(lives["key"], value_set=files["key"].combine_chunks())), 0)
    lives = lives.select(["partition", "added", "removed"])
    lives = lives.append_column("num_rows", num_rows).append_column("listed", listed)
    measured = measure_damage(lives, rewriting)
    # Files that aren't in the log, and rows that deletion vectors delete.
    unknown = files.filter(pc.is_null(files["added"]))["num_rows"]
    deleted = files.filter(pc.equal(files["state"], DELETED))["num_deleted"]
    outdated = sum(pc.sum(rows).as_py() or 0 for rows in (unknown, deleted))
    return replace(measured, outdated=measured.outdated + outdated)

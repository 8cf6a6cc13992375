"""Symlink manifests: the lists of files with which Presto, Athena and Hive read a Delta table.

Delta writes a file named `manifest` for each partition, below `_symlink_format_manifest`, with one line per
live file (GenerateSymlinkManifest.scala). It lists the files of the version at which it was generated.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit import plots
from compaction_kit.errors import CorruptLogError, InvalidArgumentError, UnsupportedTableError, first_line
from compaction_kit.execute.failures import SPARK_FAILURES, check_writable, translate
from compaction_kit.files import Files
from compaction_kit.history.readable import read_files_by_version
from compaction_kit.log.paths import folder_of, places
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.records import Record
from compaction_kit.session import quiet_errors
from compaction_kit.sql import table_name
from compaction_kit.storage import Store
from compaction_kit.table import Table, open_table
from compaction_kit.text import format_count

FOLDER = "_symlink_format_manifest"
PROPERTY = "delta.compatibility.symlinkFormatManifest.enabled"
LIVE, DELETED, MISSING, STALE = STATES = (
    "listed and live",
    "listed, live with rows deleted",
    "live, not listed",
    "listed, not live",
)
_LISTED = pa.schema([("partition", pa.string()), ("path", pa.string()), ("size_bytes", pa.int64())])
_FILES = pa.schema([*_LISTED, ("state", pa.string())])
_AGAIN = "generate it again with interop.generate_manifest(table)"


@dataclass(frozen=True, repr=False)
class ManifestCheck(Record):
    """A symlink manifest compared with the log; made by `check_manifest`.

    Attributes:
        latest: The table's version.
        version: The newest version whose live files are exactly the listed ones; None if there is none.
        files: One row per line of the manifest, as in `read_manifest`, and per live file that it doesn't
            list, with its state (string): "listed and live"; "listed, live with rows deleted" (by a deletion
            vector, which readers of the manifest ignore); "live, not listed"; "listed, not live" (or live
            and listed twice, or in another partition).
        by_version: One row per version: version, num_live, num_listed (its live files that are listed).
        kept: Whether Delta keeps the manifest up to date.
        refusal: Why Delta would refuse to generate a manifest now; None if it wouldn't.
    """

    latest: int
    version: int | None
    files: pa.Table
    by_version: pa.Table
    kept: bool
    refusal: str | None

    @property
    def matches(self) -> bool:
        """Whether a reader of the manifest reads exactly the files of the latest version."""
        return self.count(LIVE) == len(self.files) and not self.num_gone

    @property
    def num_gone(self) -> int:
        """The number of listed files that are missing, so that a reader fails."""
        return self.files["size_bytes"].null_count

    def count(self, state: str) -> int:
        """Count the files in a state."""
        return pc.sum(pc.equal(self.files["state"], state)).as_py() or 0

    def facts(self) -> dict[str, str]:
        """Return the listed version, the differences, and what readers get: name and value."""
        which = f"the files of {'no version' if self.version is None else f'version {self.version}'}"
        if self.matches:
            which = f"the {format_count(self.count(LIVE), 'live file')} of version {self.latest}"
        now = "the latest" if self.version == self.latest else f"and the table is at version {self.latest}"
        kept = f"yes, by {PROPERTY}" if self.kept else "no"
        facts = {"manifest": f"lists {which}, {now}", "kept by Delta": kept}
        if self.matches:
            return facts
        counts = {state: self.count(state) for state in STATES} | {"listed, missing on disk": self.num_gone}
        facts |= {name: format_count(count, "file") for name, count in counts.items() if count}
        if self.num_gone:
            facts["its readers"] = "fail, as files are missing"
        elif self.version is not None:
            facts["its readers"] = f"get the rows of version {self.version}, until VACUUM deletes its files"
        refused = self.refusal and f"Delta refuses to generate a manifest: {self.refusal}"
        return facts | {"what to do": refused or _AGAIN}

    explain = Record.summary

    def plot(self) -> "plots.Chart":
        """Draw how many of each version's live files are listed."""
        return plots.manifest(self.by_version, self.version)


def check_manifest(table: Table | str | Path) -> ManifestCheck:
    """Compare the symlink manifest of a table (or of its path or name) with the log.

    Raises:
        InvalidArgumentError: There is no manifest.
        CorruptLogError: A manifest is not text.

    Examples:
        >>> table = ck.open_table("data/flights")
        >>> ck.interop.generate_manifest(table)
        >>> check = ck.interop.check_manifest(table)
        >>> print(check.explain())
        manifest         lists the 1,095 live files of version 365, the latest
        kept by Delta    no
    """
    table = open_table(table)
    lines, needs = read_manifest(table).to_pylist(), read_files_by_version(table.handle)
    snapshot, lifetimes, files = needs.snapshot, needs.lifetimes, needs.snapshot.live_files
    folders, sizes = partition_folders(Files(snapshot)), files["size_bytes"].to_pylist()
    live = list(zip(folders, places(files["path"], table.handle.store).to_pylist(), strict=True))
    has_vector = pc.greater(pc.fill_null(files["deletion_vector_cardinality"], 0), 0).to_pylist()
    deleted = {key for key, deletes in zip(live, has_vector, strict=True) if deletes}
    missing, rows, live_paths = dict(zip(live, sizes, strict=True)), [], {path for _, path in live}
    for line in lines:
        key = line["partition"], line["path"]
        state = STALE if missing.pop(key, None) is None else DELETED if key in deleted else LIVE
        rows.append(line | {"state": state})
    listed = {row["path"] for row in rows if row["state"] != STALE or row["path"] not in live_paths}
    for (partition, path), size in missing.items():
        rows.append({"partition": partition, "path": path, "size_bytes": size, "state": MISSING})
    # A reader of the manifest ignores deletion vectors.
    is_listed = pc.is_in(lifetimes["path"], value_set=pa.array(listed, pa.string()))
    whole = pc.and_(is_listed, pc.is_null(lifetimes["deletion_vector_id"])).cast(pa.int64()).to_numpy()
    counts = [needs.totals(lifetimes, weights) for weights in (np.ones_like(whole), whole)]
    columns = {"version": needs.versions, "num_live": counts[0], "num_listed": counts[1]}
    matching = needs.versions[(counts[0] == len(lines)) & (counts[1] == len(lines))].tolist()
    return ManifestCheck(
        latest=snapshot.version,
        version=max(matching, default=None),
        files=pa.Table.from_pylist(rows, _FILES).sort_by([("partition", "ascending"), ("path", "ascending")]),
        by_version=pa.table(columns),
        kept=snapshot.metadata.configuration.get(PROPERTY, "").lower() == "true",
        refusal=refusal(snapshot),
    )


def read_manifest(table: Table | str | Path) -> pa.Table:
    """Read the lines of a table's manifest, without reading the log; see `check_manifest`.

    Returns:
        One row per line: partition (string, the manifest's folder, such as "origin=JFK"), path (string,
        relative to the table and decoded, or the line itself if the file is elsewhere), size_bytes (int64,
        null if the file is missing).

    Raises:
        InvalidArgumentError: There is no manifest.
        CorruptLogError: A manifest is not text.
    """
    table = open_table(table)
    store = table.handle.store
    folders = [f for f, entries in sorted(store.walk(FOLDER)) if any(e.name == "manifest" for e in entries)]
    if not folders:
        advice, reason = ": generate one with interop.generate_manifest(table)", refusal(table.log.snapshot())
        if reason:
            advice = f", and Delta refuses to generate one: {reason}"
        raise InvalidArgumentError(f"{table.name} has no symlink manifest{advice}.")
    rows = []
    for folder in folders:
        partition = folder.removeprefix(FOLDER).removeprefix("/")
        try:
            lines = store.read(f"{folder}/manifest").decode().split("\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = first_line(error)
            raise CorruptLogError(f"{folder}/manifest can't be read ({reason}): {_AGAIN}.") from None
        for line in filter(None, lines):
            path = _relative(line, store)
            file = store.status(path)
            size_bytes = file.size_bytes if file and file.is_file else None
            rows.append({"partition": partition, "path": path, "size_bytes": size_bytes})
    return pa.Table.from_pylist(rows, schema=_LISTED)


def _relative(line: str, store: Store) -> str:
    if not store.is_local:
        return store.relative(line) or line
    if not line.startswith(("/", "file:")) or "\0" in line:
        return line
    path, prefix = "/" + line.removeprefix("file:").lstrip("/"), f"{store.root}/"
    # The writer may have used another path to the table, by a symbolic link.
    return (path if path.startswith(prefix) else store.real(path)).removeprefix(prefix)


@quiet_errors()
def generate_manifest(table: Table | str | Path) -> None:
    """Generate the manifest of the latest version with Delta's GENERATE, which makes no commit.

    It replaces the manifests of partitions one after the other. Add new partitions to the metastore
    afterwards. `check_manifest` has an example.

    Raises:
        UnsupportedTableError: The table has column mapping or deletion vectors, which Delta refuses.
        RunFailedError, ReadOnlyTableError: The manifest could not be written.
    """
    table = open_table(table)
    reason, store = refusal(table.log.snapshot()), table.handle.store
    if reason is not None:
        raise UnsupportedTableError(f"{table.name} can't have a symlink manifest: {reason}.")
    check_writable(store, FOLDER if store.is_folder(FOLDER) else "")
    try:
        name = table_name(table.spark, table.handle.uri)
        table.spark.sql(f"GENERATE symlink_format_manifest FOR TABLE {name}").collect()
    except (*SPARK_FAILURES, ConnectionError) as error:
        raise translate(error, store.root, "the manifest may be outdated") from None


def refusal(snapshot: Snapshot) -> str | None:
    """Return why Delta can't generate a manifest of a version; None if it can."""
    if snapshot.metadata.is_mapped:
        return "the table has column mapping; copy its rows to a table without it"
    if snapshot.has_vectors:
        return (
            "the table has deletion vectors, and other readers would read the deleted rows; run REORG "
            "TABLE … APPLY (PURGE) first, with delta.enableDeletionVectors=false"
        )
    return None


def partition_folders(files: Files) -> list[str]:
    """Return the folder of each file's partition, as in Delta; "" without partition columns."""
    if not files.partition_columns:
        return [""] * files.num_files
    rows = list(zip(*files.partitions.to_pydict().values(), strict=True))
    names = {values: folder_of(files.partition_columns, values) for values in set(rows)}
    return [names[values] for values in rows]

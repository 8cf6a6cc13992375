"""Predict the bytes of rewritten files with a model of the table; find the bytes of dropped columns."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compaction_kit.errors import StorageError, UnsupportedTableError, first_line
from compaction_kit.files import Files
from compaction_kit.log.paths import is_remote, places
from compaction_kit.log.protocol import ROW_COLUMNS, Metadata
from compaction_kit.plan.partitions import partition_groups
from compaction_kit.storage import Store
from compaction_kit.text import MIB, format_count, format_size

_FEWEST_FILES = 3
_MOST_FILES = 64
_MOST_BYTES = 32 * MIB


@dataclass(frozen=True)
class SizeModel:
    """Models a file's bytes as an overhead and some bytes per row.

    Each file has a footer, a schema and dictionaries, so one large file has fewer bytes than many small ones.
    A straight line through the table's own files shows how many fewer; if dictionaries save more in larger
    files than these, the output is smaller still.

    Attributes:
        overhead: Bytes of each file that don't depend on its rows.
        weights: Bytes of each file's live rows, int64, one element per file.
        basis: How the numbers were estimated, as text.
    """

    overhead: int
    weights: np.ndarray
    basis: str

    @classmethod
    def of(cls, files: Files) -> "SizeModel":
        """Fit a least-squares line of bytes by rows to some files."""
        sizes, (records, deleted) = files.sizes, count_rows(files)
        known = ~np.isnan(records) & (records > 0)
        if known.sum() >= _FEWEST_FILES and len(np.unique(records[known])) > 1:
            slope, intercept = np.polyfit(records[known], sizes[known], 1)
            if slope > 0 and intercept >= 0:
                overhead = float(min(intercept, sizes[known].min()))
                weights = np.where(known, slope * (records - deleted), np.maximum(sizes - overhead, 0))
                how = f"estimated from {int(known.sum()):,} of the table's files"
                return cls(int(overhead), _bounded(weights, sizes), _basis(overhead, slope, how))
        share = np.ones(len(sizes))
        share[known] = 1 - deleted[known] / records[known]
        return cls(0, _bounded(sizes * share, sizes), "at most the bytes of the rows that are kept")

    @classmethod
    def sampled(cls, store: Store, files: Files) -> "SizeModel":
        """Make a model by rewriting some files to memory.

        The oldest files of the partition with the most files, at most 64 files and 32 MiB, are read and
        written again: once half of them, once all. The difference is the cost of rows, the rest the overhead.
        If a file can't be read, the line through the files' sizes is used (`SizeModel.of`).
        """
        records, deleted = count_rows(files)
        rows = records - deleted
        chosen = _neighbours(files, rows)
        if len(chosen) < 2:
            return cls.of(files)
        try:
            found = places(files.paths(chosen), store)
            if pc.any(is_remote(found)).as_py():
                return cls.of(files)
            data = store.at_once(store.read, found.to_pylist())
            opened = [pq.ParquetFile(pa.BufferReader(one)) for one in data]
            parts = [file.read() for file in opened]
            codec = opened[0].metadata.row_group(0).column(0).compression
            whole, half = (_written(parts[:count], codec) for count in (len(parts), len(parts) // 2))
        except (OSError, pa.ArrowException, IndexError):
            return cls.of(files)
        counts = np.cumsum([len(part) for part in parts])
        slope = (whole - half) / (counts[-1] - counts[len(parts) // 2 - 1])
        overhead = whole - slope * counts[-1]
        if slope <= 0 or overhead < 0:
            return cls.of(files)
        weights = np.where(np.isnan(rows), files.sizes, slope * rows)
        how = f"measured by rewriting {len(chosen):,} files in memory"
        return cls(int(overhead), _bounded(weights, files.sizes), _basis(overhead, slope, how))

    def output_bytes(self, positions: np.ndarray, bin_ids: np.ndarray, num_bins: int) -> np.ndarray:
        """Predict the bytes of each bin's output, int64; `bin_ids` has the bin of each file."""
        contents = np.bincount(bin_ids, self.weights[positions], minlength=num_bins)
        return (contents + self.overhead).astype(np.int64)


def count_rows(files: Files) -> tuple[np.ndarray, np.ndarray]:
    """Return each file's number of rows (float64; NaN if the log lacks it), and of deleted rows."""
    table = files.to_arrow()
    records = pc.cast(table["num_records"], "float64").to_numpy()
    deleted = pc.fill_null(table["deletion_vector_cardinality"], 0).to_numpy()
    return records, deleted


def _bounded(weights: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return np.clip(np.ceil(weights), 0, sizes).astype(np.int64)


def _basis(overhead: float, slope: float, how: str) -> str:
    rate = f"{slope:,.1f}" if slope >= 1 else f"{slope:.1g}"
    return f"{format_size(overhead)} per file and {rate} bytes per row, {how}"


def _neighbours(files: Files, rows: np.ndarray) -> np.ndarray:
    """Return the oldest files of the partition with the most files, as many as may be rewritten.

    The choice doesn't depend on the files' order, which differs between a checkpoint and commits.
    """
    usable = np.flatnonzero(rows > 0)
    if not len(usable):
        return usable
    groups = partition_groups(files.partitions)[usable]
    counts = np.bincount(groups)
    fullest = np.flatnonzero((counts == counts.max())[groups])
    paths = files.paths(usable[fullest])
    members = usable[groups == groups[fullest[pc.index(paths, pc.min(paths)).as_py()]]]
    times = files.to_arrow()["modification_time"].take(pa.array(members))
    table = pa.table({"position": members, "time": times, "path": files.paths(members)})
    keys = [("time", "ascending"), ("path", "ascending")]
    chosen = table.take(pc.select_k_unstable(table, min(_MOST_FILES, len(table)), keys))
    members = chosen["position"].to_numpy()
    kept: np.ndarray = members[np.cumsum(files.sizes[members]) <= _MOST_BYTES]
    return kept


def _written(parts: list[pa.Table], codec: str) -> int:
    rows, sink = pa.concat_tables(parts, promote_options="default"), pa.BufferOutputStream()
    # Written as the strategy "arrow" writes files; OPTIMIZE doesn't store Arrow's schema either.
    pq.write_table(rows, sink, compression=codec, store_schema=False)
    return int(sink.tell())


def dropped_columns(store: Store, files: Files) -> np.ndarray:
    """Return the bytes of each file's dropped columns, int64; -1 for a file that has none.

    REORG also drops columns that UPDATE and MERGE write for a change data feed, and those for row tracking
    once it is off (ReorgTableHelper.fileHasExtraColumns). Footers are read if there may be any.

    Raises:
        UnsupportedTableError: Files are outside of the table's folder.
        StorageError: A footer can't be read.
    """
    metadata, protocol = files.snapshot.metadata, files.snapshot.protocol
    keys = protocol.writer_features.union(metadata.configuration)
    # Writer versions 4 to 6 support the change data feed without naming the feature.
    has_feed = 4 <= protocol.min_writer_version < 7 or keys & {"changeDataFeed", "delta.enableChangeDataFeed"}
    # Row tracking needs the feature domainMetadata, which stays when row tracking is dropped.
    has_tracked = keys & {"domainMetadata", "delta.enableRowTracking"}
    if not (metadata.may_have_dropped_columns or has_feed or has_tracked):
        return np.full(files.num_files, -1)
    paths = places(files.paths(np.arange(files.num_files)), store)
    if far := pc.sum(is_remote(paths)).as_py():
        raise UnsupportedTableError(
            f"{format_count(far, 'file')} outside of the table's folder may have dropped columns, which is "
            "unknown: run REORG TABLE … APPLY (PURGE) in SQL."
        )
    found = store.at_once(partial(_dropped_in, store, metadata), paths.to_pylist())
    return np.fromiter(found, np.int64, files.num_files)


def _dropped_in(store: Store, metadata: Metadata, place: str) -> int:
    try:
        with store.open(place) as file:
            footer = pq.read_metadata(file)
    except (OSError, pa.ArrowException) as error:
        raise StorageError(
            f"The footer of {store.place(place)} can't be read ({first_line(error)}), and REORG reads all "
            "footers: restore a version without this file."
        ) from None
    row = pa.struct(list(footer.schema.to_arrow_schema()))
    # Parquet numbers its columns in the order of the leaves.
    dropped = np.flatnonzero(_dropped_leaves(row, metadata.schema, metadata)).tolist()
    groups = map(footer.row_group, range(footer.num_row_groups))
    total = sum(group.column(i).total_compressed_size for group in groups for i in dropped)
    return total if dropped else -1


def _dropped_leaves(kind: pa.DataType, known: Any, metadata: Metadata) -> list[bool]:
    """Return for each leaf column of a type whether the Delta type `known` (or None) lacks it."""
    if not pa.types.is_nested(kind):
        return [known is None]
    if not isinstance(known, dict) or known["type"] == "udt":
        # Delta doesn't look into a variant, or a user-defined type.
        children = [(kind.field(i).type, known) for i in range(kind.num_fields)]
    elif known["type"] == "struct":
        fields = {metadata.physical_name(field).lower(): field["type"] for field in known["fields"]}
        if metadata.tracks_rows:
            # Files have these columns although the schema doesn't.
            names = filter(None, map(metadata.configuration.get, ROW_COLUMNS))
            fields |= dict.fromkeys(map(str.lower, names), "long")
        children = [(child.type, fields.get(child.name.lower())) for child in kind]
    elif known["type"] == "map":
        children = [(kind.key_type, known["keyType"]), (kind.item_type, known["valueType"])]
    else:
        children = [(kind.value_type, known["elementType"])]
    return [leaf for child, found in children for leaf in _dropped_leaves(child, found, metadata)]

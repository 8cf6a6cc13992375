"""How large an output will be, by trial: some of the table's files rewritten in memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compaction_kit.files import Files
from compaction_kit.log.paths import is_remote, places
from compaction_kit.plan.estimate import SizeModel, live_rows
from compaction_kit.plan.partitions import text_groups
from compaction_kit.text import MIB, format_size

_MOST_FILES = 64
_MOST_BYTES = 32 * MIB


def sampled_model(table: Path, files: Files) -> SizeModel:
    """What the files' bytes will be made of once they are rewritten.

    Up to 64 files and 32 MiB of the partition with the most files are read and written again to
    memory, half of them and all of them: the difference is what more rows cost, and the rest
    is what a file costs. Where a file can't be read so, the line through the files' own sizes
    has to do (`SizeModel.of`).

    Args:
        table: The table's folder.
        files: The files to be judged.
    """
    rows = live_rows(files)
    chosen = _neighbours(files, rows)
    if len(chosen) < 2:
        return SizeModel.of(files)
    try:
        paths = _locations(table, files, chosen)
        parts = [pq.read_table(path, partitioning=None) for path in paths]
        codec = pq.read_metadata(paths[0]).row_group(0).column(0).compression
        whole, half = (_written(parts[:count], codec) for count in (len(parts), len(parts) // 2))
    except (OSError, pa.ArrowException, IndexError):
        return SizeModel.of(files)
    counts = np.cumsum([len(part) for part in parts])
    slope = (whole - half) / (counts[-1] - counts[len(parts) // 2 - 1])
    overhead = whole - slope * counts[-1]
    if slope <= 0 or overhead < 0:
        return SizeModel.of(files)
    weights = np.where(np.isnan(rows), files.sizes, slope * rows)
    costs = f"{format_size(overhead)} a file and {slope:,.1f} bytes a row"
    basis = f"{costs}, by writing {len(chosen):,} files to memory"
    return SizeModel.by_row(overhead, weights, files.sizes, basis)


def _neighbours(files: Files, rows: np.ndarray) -> np.ndarray:
    """Files that stand side by side in the log and in one partition, as many as a trial may take."""
    groups = text_groups(files.partitions)
    usable = rows > 0
    if not usable.any():
        return np.flatnonzero(usable)
    fullest = np.bincount(groups[usable]).argmax()
    members = np.flatnonzero(usable & (groups == fullest))[:_MOST_FILES]
    kept: np.ndarray = members[np.cumsum(files.sizes[members]) <= _MOST_BYTES]
    return kept


def _locations(table: Path, files: Files, positions: np.ndarray) -> list[Path]:
    found = places(files.paths(positions), table)
    if pc.any(is_remote(found)).as_py():
        raise OSError("not on a local disk")
    return [table / place for place in found.to_pylist()]


def _written(parts: list[pa.Table], codec: str) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables(parts, promote_options="default"), sink, compression=codec)
    return int(sink.tell())

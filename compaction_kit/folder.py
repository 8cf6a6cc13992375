"""The files in a table's folder, live or not, as VACUUM sees them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

_SHOWN = ("_delta_index", "_change_data")
COLUMNS = pa.schema([("path", pa.string()), ("size_bytes", pa.int64()), ("modification_time", pa.int64())])


def list_folder(table: Path, partition_columns: Sequence[str]) -> pa.Table:
    """Every file that VACUUM looks at; hidden ones and those in hidden folders are left out.

    Args:
        table: The table's folder.
        partition_columns: By which it is partitioned: their folders are shown whatever their names
            (DeltaTableUtils.isHiddenDirectory).

    Returns:
        path (relative to the table, as on disk), size_bytes, modification_time (ms since 1970).
    """
    shown = (*_SHOWN, *(f"{column}=" for column in partition_columns))
    found = list(_walk(str(table), "", shown))
    columns = zip(*found, strict=True) if found else ([], [], [])
    return pa.table(
        [pa.array(list(column), field.type) for column, field in zip(columns, COLUMNS, strict=True)], COLUMNS
    )


def _walk(folder: str, prefix: str, shown: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
    subfolders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith((".", "_")) and not entry.name.startswith(shown):
                continue
            if entry.is_dir():
                subfolders.append(entry.name)
            else:
                status = entry.stat()
                yield prefix + entry.name, status.st_size, status.st_mtime_ns // 1_000_000
    for name in subfolders:
        yield from _walk(f"{folder}/{name}", f"{prefix}{name}/", shown)

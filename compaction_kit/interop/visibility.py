"""Which names Spark passes over when it reads a folder as Parquet, and which CONVERT TO DELTA does."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Found(NamedTuple):
    """A file in a folder: its path relative to it, and whether each of the two sees it."""

    path: str
    size_bytes: int
    modification_time: int
    spark_reads: bool
    convert_takes: bool


def walk(folder: Path) -> list[Found]:
    """Every file in a folder and those within, by path; what neither of the two sees as well."""
    return sorted(_walk(str(folder), "", True, True))


def spark_reads(path: str) -> bool:
    """Whether Spark reads a file, by its path relative to the table."""
    return all(_spark_shows(name) for name in path.split("/"))


def _walk(folder: str, prefix: str, spark: bool, convert: bool) -> Iterator[Found]:
    with os.scandir(folder) as entries:
        for entry in entries:
            is_folder = entry.is_dir()
            by_spark = spark and _spark_shows(entry.name)
            by_convert = convert and _convert_shows(entry.name, is_folder)
            if is_folder:
                yield from _walk(entry.path, f"{prefix}{entry.name}/", by_spark, by_convert)
            else:
                status = entry.stat()
                path = prefix + entry.name
                yield Found(path, status.st_size, status.st_mtime_ns, by_spark, by_convert)


def _spark_shows(name: str) -> bool:
    """HadoopFSUtils.shouldFilterOutPathName."""
    return not (
        (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")
    )


def _convert_shows(name: str, is_folder: bool) -> bool:
    """DeltaFileOperations.defaultHiddenFileFilter, and ConvertUtils.dirNameFilter for folders."""
    return not name.startswith(("_", ".")) or (is_folder and "=" in name)

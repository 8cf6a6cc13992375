"""The content of folders, and copies of tables."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compaction_kit import open_table
from compaction_kit.session import cache_folder

NOBODY = 65534


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and mtime of everything in a folder, by path; equal listings mean that nothing changed."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
    }


def copy(table: Path, to: Path) -> Path:
    """Copy a table with its file times."""
    return Path(shutil.copytree(table, to))


def live(table: Path | str, version: int | None = None) -> set[str]:
    """The paths of the live files of a version."""
    return set(open_table(table).files(version).to_arrow()["path"].to_pylist())


def data_files(table: Path) -> set[Path]:
    """The Parquet files of a table, live or not, its log's left out."""
    return set(table.rglob("*.parquet")) - set((table / "_delta_log").rglob("*"))


def own_cache(folder: Path) -> str:
    """Make a cache for XDG_CACHE_HOME: the user's, without the times of runs and the opened tables."""
    used, own = cache_folder(), folder / cache_folder().name
    own.mkdir(parents=True)
    for downloaded in ("jars", "hdfs"):
        (used / downloaded).mkdir(parents=True, exist_ok=True)
    for place, into in ((used.parent, folder), (used, own)):
        for path in place.iterdir():
            if path != used and path.suffix != ".json":
                (into / path.name).symlink_to(path)
    return str(folder)


@contextmanager
def no_permission(folder: Path, *places: Path) -> Iterator[None]:
    """Run the block without permission to write to `places`; root, who may write anywhere, becomes NOBODY."""
    is_root = os.geteuid() == 0
    # Only root may read pytest's folders.
    closed = [path for path in folder.parents if path.stat().st_mode & 0o5 != 0o5]
    modes = {path: path.stat().st_mode & 0o7777 for path in [*places, *closed]}
    try:
        for path in closed if is_root else places:
            path.chmod(0o755 if is_root else 0o555)
        if is_root:
            os.seteuid(NOBODY)
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for path, mode in modes.items():
            path.chmod(mode)

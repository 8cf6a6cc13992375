"""Set a table's log and dead files aside, and put them back: each keeps its path, below another folder."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.folder import list_folder
from compaction_kit.interop.as_parquet import live_paths
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.table import Table, local_path, open_table
from compaction_kit.text import format_count


def put_back(path: str | Path, set_aside: str | Path) -> Table:
    """Make a folder of Parquet files the Delta table again that it was, older versions and all.

    `ParquetResult.undo` calls it; call it yourself after a run that was killed.

    Args:
        path: The folder that was the table's.
        set_aside: Where its log and its dead files are.

    Returns:
        The table, at the version that it had. The folder `set_aside` is gone.

    Raises:
        InvalidArgumentError: There is no log to put back, or the folder's files aren't those of the
            log's latest version any more, so that rows would be lost; nothing was changed.
    """
    folder, aside = local_path(str(path)).resolve(), local_path(str(set_aside)).resolve()
    has_log = (folder / LOG_FOLDER).is_dir()
    if not aside.is_dir():
        raise InvalidArgumentError(
            f"{set_aside} is no folder, so that nothing can be put back: check the path."
        )
    if (aside / LOG_FOLDER).is_dir() == has_log:
        where = "both hold" if has_log else "neither holds"
        raise InvalidArgumentError(
            f"{folder} and {aside} {where} a {LOG_FOLDER}, so that nothing can be put back."
        )
    if not has_log:
        _check_unchanged(folder, open_table(aside))
    restore(folder, aside)
    return open_table(folder)


def move_aside(paths: Iterable[str], folder: Path, aside: Path) -> None:
    """Move files and at last the log, so that until then the folder holds a whole Delta table.

    Args:
        paths: The files, relative to the folder.
        folder: The table's.
        aside: Where they go; it is made.
    """
    aside.mkdir()
    named = [name for path in paths for name in (path, _checksum(path))]
    _move((name for name in named if (folder / name).exists()), folder, aside)
    (folder / LOG_FOLDER).rename(aside / LOG_FOLDER)


def restore(folder: Path, aside: Path) -> None:
    """Put the log back, if it was moved, and then the files; the folder they were in goes."""
    if (aside / LOG_FOLDER).is_dir():
        (aside / LOG_FOLDER).rename(folder / LOG_FOLDER)
    paths = [path.relative_to(aside).as_posix() for path in aside.rglob("*") if path.is_file()]
    _move(paths, aside, folder)
    # A run that was killed may have left empty ones.
    for one, _, _ in os.walk(aside, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(one)


def _check_unchanged(folder: Path, table: Table) -> None:
    files = table.files()
    live = dict(zip(live_paths(table).to_pylist(), files.sizes.tolist(), strict=True))
    found = list_folder(folder, files.partition_columns)
    now = dict(zip(found["path"].to_pylist(), found["size_bytes"].to_pylist(), strict=True))
    new, changed = now.keys() - live.keys(), {path for path, size in live.items() if now.get(path) != size}
    for paths, what in ((new, "new"), (changed, "gone or changed")):
        if paths:
            raise InvalidArgumentError(
                f"{format_count(len(paths), 'file')} in {folder} {what} since it became Parquet, such as "
                f"{min(paths)}, of which the log knows nothing: move such files out, or make a new table of "
                "the folder with interop.plan_convert."
            )


def _move(paths: Iterable[str], source: Path, target: Path) -> None:
    """Move files, and remove the folders that are empty then."""
    folders = set()
    for path in paths:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        os.replace(source / path, target / path)
        folders.add(PurePosixPath(path).parent)
    for folder in sorted(folders, reverse=True):
        for one in (folder, *folder.parents):
            if one != PurePosixPath("."):
                with contextlib.suppress(OSError):
                    (source / one).rmdir()


def _checksum(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"

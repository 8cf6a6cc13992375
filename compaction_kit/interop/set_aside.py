"""Set a table's log and dead files aside, and put them back: each keeps its path, below another folder."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.folder import list_folder
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.log.paths import places
from compaction_kit.storage import local_path
from compaction_kit.table import Table, open_table
from compaction_kit.text import format_count


def put_back(path: str | Path, set_aside: str | Path) -> Table:
    """Make a folder of Parquet files the Delta table again that it was, with all its versions.

    `ParquetResult.undo` calls it; call it yourself after a run that was killed.

    Args:
        path: The folder that was the table's.
        set_aside: The folder with its log and its dead files.

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
    changed = {} if has_log else changed_files(folder, open_table(aside))
    if changed:
        path, change = next(iter(changed.items()))
        raise InvalidArgumentError(
            f"{format_count(len(changed), 'file')} in {folder} new, gone or changed since it became Parquet, "
            f"such as {path} ({change}): put such files back as they were, or make a new table of the folder "
            "with interop.plan_convert."
        )
    restore(folder, aside)
    return open_table(folder)


def move_aside(paths: Iterable[str], folder: Path, aside: Path) -> None:
    """Move files, and the log last, so that until then the folder holds a whole Delta table."""
    aside.mkdir()
    for path in paths:
        parent, slash, name = path.rpartition("/")
        for moved in (path, f"{parent}{slash}.{name}.crc"):
            if os.path.lexists(folder / moved):
                # Folders that are empty then are removed.
                os.renames(folder / moved, aside / moved)
    (folder / LOG_FOLDER).rename(aside / LOG_FOLDER)


def restore(folder: Path, aside: Path) -> None:
    """Put the log back, if it was moved, then the files, and remove the folder that they were in."""
    if (aside / LOG_FOLDER).is_dir():
        (aside / LOG_FOLDER).rename(folder / LOG_FOLDER)
    for parent, _, names in os.walk(aside, topdown=False):
        target = folder / Path(parent).relative_to(aside)
        for name in names:
            target.mkdir(parents=True, exist_ok=True)
            os.replace(Path(parent, name), target / name)
        with contextlib.suppress(OSError):
            os.rmdir(parent)


def changed_files(folder: Path, aside: Table) -> dict[str, str]:
    """How files in a folder differ from the live ones of its log that was set aside: new, gone, changed."""
    files = aside.files()
    paths = places(files.snapshot.live["path"], folder).to_pylist()
    live = dict(zip(paths, files.sizes.tolist(), strict=True))
    found = list_folder(folder, files.partition_columns)
    now = dict(zip(found["path"].to_pylist(), found["size_bytes"].to_pylist(), strict=True))
    changed = sorted({path for path, _ in now.items() ^ live.items()})
    return {path: "new" if path not in live else "changed" if path in now else "gone" for path in changed}

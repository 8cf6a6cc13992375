"""Move a table's log and dead files to another folder, with the same paths below it, and put them back."""

import posixpath
from collections.abc import Iterable
from pathlib import Path

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.folder import list_folder
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.log.paths import places
from compaction_kit.storage import LocalStore, checksum_place, local_store
from compaction_kit.table import Table, open_table
from compaction_kit.text import format_count

_WHAT = "Conversion"


def put_back(path: str | Path, set_aside: str | Path) -> Table:
    """Turn a folder of Parquet files back into the Delta table that it was, with all its versions.

    `ParquetResult.undo` calls this; call it yourself after a run that was killed.

    Args:
        path: The folder of the former table.
        set_aside: The folder with its log and its dead files.

    Returns:
        The table, at its former version. The folder `set_aside` is deleted.

    Raises:
        InvalidArgumentError: There is no log to put back, or the folder's files are no longer those of the
            log's latest version, so that rows would be lost; nothing was changed.
    """
    folder, aside = local_store(path, _WHAT), local_store(set_aside, _WHAT)
    has_log = folder.is_folder(LOG_FOLDER)
    if not aside.is_folder():
        raise InvalidArgumentError(
            f"{set_aside} is not a folder, so nothing can be put back: check the path."
        )
    if aside.is_folder(LOG_FOLDER) == has_log:
        where = "both hold" if has_log else "neither holds"
        raise InvalidArgumentError(
            f"{folder.root} and {aside.root} {where} a {LOG_FOLDER}, so nothing can be put back."
        )
    changed = {} if has_log else changed_files(folder, open_table(aside.root))
    if changed:
        path, change = next(iter(changed.items()))
        raise InvalidArgumentError(
            f"{format_count(len(changed), 'file')} in {folder.root} new, gone or changed since it became "
            f"Parquet, such as {path} ({change}): restore such files, or make a new table of the folder "
            "with interop.plan_convert."
        )
    restore(folder, aside)
    return open_table(folder.root)


def move_aside(paths: Iterable[str], store: LocalStore, aside: Path) -> None:
    """Move files, and the log last, so that until then the folder is a complete Delta table."""
    store.make_folder(str(aside), exist_ok=False)
    for path in paths:
        for moved in (path, checksum_place(path)):
            if store.is_taken(moved):
                store.move(moved, f"{aside}/{moved}")
    store.move(LOG_FOLDER, f"{aside}/{LOG_FOLDER}")


def restore(store: LocalStore, aside: LocalStore) -> None:
    """Put back the log, if it was moved, then the files, and delete the folder that held them."""
    if aside.is_folder(LOG_FOLDER):
        aside.move(LOG_FOLDER, store.place(LOG_FOLDER))
    for place, entries in aside.walk():
        for entry in entries:
            if not entry.is_folder or entry.is_link:
                moved = posixpath.join(place, entry.name)
                aside.move(moved, store.place(moved))
    aside.delete_empty()


def changed_files(folder: LocalStore, aside: Table) -> dict[str, str]:
    """Compare a folder with the live files of its log that was set aside: "new", "gone" or "changed"."""
    files = aside.files()
    paths = places(files.snapshot.live["path"], folder).to_pylist()
    live = dict(zip(paths, files.sizes.tolist(), strict=True))
    found = list_folder(folder, files.partition_columns)
    now = dict(zip(found["path"].to_pylist(), found["size_bytes"].to_pylist(), strict=True))
    changed = sorted({path for path, _ in now.items() ^ live.items()})
    return {path: "new" if path not in live else "changed" if path in now else "gone" for path in changed}

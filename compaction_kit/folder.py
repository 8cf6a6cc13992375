"""Folders: where tables may be, and what is in one, live or not, as VACUUM sees it."""

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from compaction_kit.storage import Entry, Store, open_store, shown_name

_DEEPEST = 6
_SHOWN = ("_delta_index", "_change_data")
COLUMNS = pa.schema([("path", pa.string()), ("size_bytes", pa.int64()), ("modification_time", pa.int64())])


@dataclass(frozen=True)
class Folder:
    """What is in a table's folder.

    Attributes:
        files: What VACUUM looks at: path (relative to the table, as on disk), size_bytes,
            modification_time (ms since 1970).
        directories: What each folder among them holds directly, however hidden: how many
            entries, by its path.
        hidden: What VACUUM passes over: files and folders, by their paths.
        links: What of all this is a symbolic link, by its path.
    """

    files: pa.Table
    directories: dict[str, int]
    hidden: list[str]
    links: list[str]


@dataclass
class _Found:
    # Columns, not rows: Python's garbage collector would go through 100,000 tuples again and again.
    paths: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    directories: dict[str, int] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)


def walk(root: str | Path, hidden: tuple[str, ...] = (".", "_")) -> Iterator[tuple[str, list[str]]]:
    """Folders below a root, top down, as far as six levels.

    Args:
        root: Where to begin; if it doesn't exist, there are none.
        hidden: Folders whose names begin so are passed over.

    Yields:
        A folder's path, beginning with `root`, and the names of all of its subfolders: clear that
        list, or take names from it, and they are not gone into.
    """
    for place, entries in open_store(root).walk():
        folders = {entry.name: entry for entry in entries if entry.is_folder}
        names = sorted(folders)
        yield posixpath.join(str(root), place) if place else str(root), names
        if place and place.count("/") + 1 == _DEEPEST:
            names.clear()
        entries[:] = [folders[name] for name in names if not name.startswith(hidden)]


def look_through(
    store: Store, partition_columns: Sequence[str], hides_iceberg_metadata: bool = False
) -> Folder:
    """Look at every file and folder of a table but for what hidden folders hold.

    Args:
        store: The table's files.
        partition_columns: By which it is partitioned: their folders are shown whatever their names
            (DeltaTableUtils.isHiddenDirectory).
        hides_iceberg_metadata: Whether what is called "metadata" is hidden, as it is where Delta
            writes Iceberg's metadata too.
    """
    shown = (*_SHOWN, *(f"{column}=" for column in partition_columns))
    found, root = _Found(), store.status()
    above = () if root is None else (root.identity,)
    _look(store.listed(), "", shown, "metadata" if hides_iceberg_metadata else None, found, above)
    columns = zip((found.paths, found.sizes, found.times), COLUMNS, strict=True)
    arrays = [pa.array(values, column.type) for values, column in columns]
    return Folder(pa.table(arrays, COLUMNS), found.directories, found.hidden, found.links)


def list_folder(store: Store, partition_columns: Sequence[str]) -> pa.Table:
    """Every file that VACUUM looks at; see `Folder.files`.

    Args:
        store: The table's files.
        partition_columns: By which it is partitioned.
    """
    return look_through(store, partition_columns).files


def count_files(store: Store, places: Sequence[str]) -> tuple[int, int]:
    """How many files some files and folders are or hold, at any depth, and their bytes.

    Args:
        store: The table's files.
        places: Where these are.
    """
    sizes: list[int] = []
    for place in places:
        if store.is_folder(place):
            inner = [entry for _, entries in store.walk(place) for entry in entries if not entry.is_folder]
        else:
            inner = [entry for entry in [store.status(place)] if entry is not None]
        # A link's own bytes are none; those of what it leads to are elsewhere.
        sizes += [0 if entry.is_link else entry.size_bytes for entry in inner]
    return len(sizes), sum(sizes)


def _look(
    store: Store,
    folder: str,
    shown: tuple[str, ...],
    metadata: str | None,
    found: _Found,
    above: tuple[tuple[int, int], ...],
) -> int:
    """Add what is in a folder to what was found; how many entries it has.

    `above` are the folders that it is in, and itself. Hidden is also what can't be named in UTF-8, which
    Java doesn't find, and a link that leads back to one of those: VACUUM would go round.
    """
    entries, prefix = store.entries(folder), f"{folder}/" if folder else ""
    subfolders: list[Entry] = []
    for entry in entries:
        name = entry.name
        if entry.is_link:
            found.links.append(prefix + name)
        if (
            name == metadata
            or (name.startswith((".", "_")) and not name.startswith(shown))
            or shown_name(name) != name
            or (not entry.is_file and (entry.is_gone or entry.identity in above))
        ):
            found.hidden.append(prefix + name)
        elif entry.is_folder:
            subfolders.append(entry)
        else:
            found.paths.append(prefix + name)
            found.sizes.append(entry.size_bytes)
            found.times.append(entry.modification_time)
    for entry in subfolders:
        place = prefix + entry.name
        found.directories[place] = _look(store, place, shown, metadata, found, (*above, entry.identity))
    return len(entries)

"""List folders that may hold tables, and the files of one table, live or not, as VACUUM sees them."""

import posixpath
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import UnsupportedTableError
from compaction_kit.storage import Store, open_store
from compaction_kit.text import format_list

_DEEPEST = 6
_SHOWN = ("_delta_index", "_change_data")
COLUMNS = pa.schema([("path", pa.string()), ("size_bytes", pa.int64()), ("modification_time", pa.int64())])


class WithFiles:
    """Counts the table `files` of a plan or result about a folder."""

    files: pa.Table

    @property
    def num_files(self) -> int:
        """The number of files in `files`."""
        return self.files.num_rows

    @property
    def size_bytes(self) -> int:
        """The bytes of the files in `files`."""
        return pc.sum(self.files["size_bytes"]).as_py() or 0


@dataclass(frozen=True)
class Folder:
    """The content of a table's folder.

    Attributes:
        files: The files that VACUUM lists: path (relative to the table, as on disk), size_bytes,
            modification_time (ms since 1970).
        directories: The number of entries of each folder that VACUUM lists, hidden ones included, by path.
    """

    files: pa.Table
    directories: dict[str, int]


def walk(root: str | Path, hidden: tuple[str, ...], skipped: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the folders below a root, six levels deep, top down; nothing if it does not exist.

    Yields:
        The path of a folder, beginning with `root`, and the names of all its subfolders; names that are
        removed from this list, or begin with one of `hidden`, are not visited. Folders that can't be read are
        named in `skipped`.
    """
    for place, entries in open_store(root).walk(skipped=skipped):
        folders = {entry.name: entry for entry in entries if entry.is_folder}
        names = sorted(folders)
        yield posixpath.join(str(root), place) if place else str(root), names
        if place and place.count("/") + 1 == _DEEPEST:
            names.clear()
        entries[:] = [folders[name] for name in names if not name.startswith(hidden)]


def explain_skipped(skipped: Sequence[str]) -> str:
    """Say which folders `walk` could not read; empty if there are none."""
    return f"Skipped: {format_list(sorted(skipped))}; check the permissions." if skipped else ""


def warn_of(skipped: Sequence[str]) -> None:
    """Warn of folders that `walk` could not read, if there are any."""
    if skipped:
        warnings.warn(explain_skipped(skipped), stacklevel=3)


def look_through(
    store: Store, partition_columns: Sequence[str], hides_iceberg_metadata: bool = False
) -> Folder:
    """List every file and folder of a table, without the content of hidden folders.

    Args:
        store: The table's files.
        partition_columns: Their folders are always listed (DeltaTableUtils.isHiddenDirectory).
        hides_iceberg_metadata: Whether "metadata" is hidden, as if Delta writes Iceberg's metadata too.

    Raises:
        UnsupportedTableError: The folder holds a symbolic link: VACUUM would delete files through it.
    """
    shown = (*_SHOWN, *(f"{column}=" for column in partition_columns))
    # Columns, because Python's garbage collector would scan 100,000 tuples for rows repeatedly.
    paths, sizes, times = list[str](), list[int](), list[int]()
    directories, listed = dict[str, int](), store.listed()

    def look(folder: str) -> int:
        entries, prefix = listed.entries(folder), f"{folder}/" if folder else ""
        for name, is_file, is_folder, size_bytes, modified_ns, _ in entries:
            is_hidden = name.startswith((".", "_")) and not name.startswith(shown)
            if is_hidden or (hides_iceberg_metadata and name == "metadata"):
                continue
            if is_file:
                paths.append(prefix + name)
                sizes.append(size_bytes)
                times.append(modified_ns // 1_000_000)
            elif is_folder:
                directories[prefix + name] = look(prefix + name)
            else:
                raise UnsupportedTableError(
                    f"The table's folder {store.root} holds {prefix}{name}, a symbolic link, which is not "
                    "followed: put the files that it leads to in its place."
                )
        return len(entries)

    look("")
    return Folder(pa.table([paths, sizes, times], schema=COLUMNS), directories)

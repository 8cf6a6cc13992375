"""Where the bytes of tables are, and the operations by which all of the kit reaches them.

A store is one folder: a table's, or one that tables are in. Its operations take places: paths relative
to that folder, or absolute ones for a file elsewhere, as `log.paths.places` gives them; "" is the folder
itself. `LocalStore` is the one for local disks, `RemoteStore` that for everything else; `open_store`
chooses by the scheme of a name. What writes to a table's folder by itself needs a `LocalStore`.
"""

import os
import posixpath
import re
from pathlib import Path
from urllib.parse import unquote

from compaction_kit.errors import CompactionKitError, TableNotFoundError, UnsupportedTableError
from compaction_kit.storage.local import Entry, LocalStore
from compaction_kit.storage.options import S3_SCHEMES, Files
from compaction_kit.storage.remote import RemoteStore

__all__ = [
    "S3_SCHEMES",
    "Entry",
    "Files",
    "LocalStore",
    "RemoteStore",
    "Store",
    "checksum_place",
    "is_folder",
    "local_path",
    "local_store",
    "open_store",
    "shown_name",
]

Store = LocalStore | RemoteStore

_MOST_SHOWN = 200
# Databricks' file system has no authority in its URIs.
_REMOTE = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://|dbfs:/")


def open_store(name: str | Path) -> Store:
    """The store of a folder, there or not, by its path or URI.

    Raises:
        TableNotFoundError: Nothing can be at such a path, or nobody may look there.
    """
    text = str(name)
    return RemoteStore(text.rstrip("/")) if _REMOTE.match(text) else LocalStore(_real(text))


def local_store(name: Store | str | Path, what: str) -> LocalStore:
    """A store, or that of a path or URI, if it is on a local disk; `what` can't be done elsewhere.

    Raises:
        UnsupportedTableError: It isn't.
    """
    store = open_store(name) if isinstance(name, (str, Path)) else name
    if isinstance(store, LocalStore):
        return store
    raise UnsupportedTableError(f"{what} works on local disks alone, and {store.root} is elsewhere.")


def is_folder(name: str) -> bool:
    """Return whether a path or URI names a folder; False for a name that can't be used."""
    try:
        return open_store(name).is_folder()
    except CompactionKitError:
        return False


def local_path(name: str) -> Path:
    """The path that a path or a URI stands for; see `open_store`.

    Raises:
        UnsupportedTableError: It isn't on a local disk.
        TableNotFoundError: Nothing can be at such a path, or nobody may look there.
    """
    if _REMOTE.match(name):
        raise UnsupportedTableError(f"{name} isn't on a local disk: give a path on one.")
    path = Path(unquote(name.removeprefix("file:").removeprefix("//")) if name.startswith("file:") else name)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise TableNotFoundError(f"No table at {name[:_MOST_SHOWN]!r}: {reason}; check the path.") from None
    return path


def checksum_place(place: str) -> str:
    """The place of the file in which Hadoop keeps another one's checksums, if it does."""
    folder, name = posixpath.split(place)
    return posixpath.join(folder, f".{name}.crc")


def shown_name(name: str) -> str:
    """A name with a mark in the place of each byte that isn't UTF-8, as no file has that is looked for."""
    return name if name.isascii() else os.fsencode(name).decode(errors="replace")


def _real(name: str) -> str:
    return os.path.realpath(local_path(name))

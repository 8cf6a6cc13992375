"""Where the bytes of tables are: by which path or URI a user names them."""

from pathlib import Path
from urllib.parse import unquote

from compaction_kit.errors import TableNotFoundError, UnsupportedTableError

_MOST_SHOWN = 200


def local_path(name: str) -> Path:
    """The path that a path or a URI stands for.

    Raises:
        UnsupportedTableError: It isn't on a local disk.
        TableNotFoundError: Nothing can be at such a path, or nobody may look there.
    """
    path = _path_of(name)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise TableNotFoundError(f"No table at {name[:_MOST_SHOWN]!r}: {reason}; check the path.") from error
    return path


def _path_of(name: str) -> Path:
    if name.startswith("file:"):
        return Path(unquote(name.removeprefix("file:").removeprefix("//")))
    scheme, separator, _ = name.partition("://")
    if separator:
        raise UnsupportedTableError(
            f"{name} is on {scheme}, and only local disks are read: copy the table here."
        )
    return Path(name)

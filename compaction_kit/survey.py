"""Many tables: where they are."""

import os
from pathlib import Path

from compaction_kit.log.names import LOG_FOLDER

_DEEPEST = 6


def find_tables(root: str | Path) -> list[str]:
    """The Delta tables in a folder, or the folder itself if it is one.

    Hidden folders are passed over, and so is what is inside a table or more than six levels down.

    Args:
        root: A folder on a local disk; one that doesn't exist holds no tables.

    Returns:
        Their paths, each beginning with `root`, sorted.
    """
    found = []
    base = str(root)
    for folder, subfolders, _ in os.walk(base):
        depth = len(Path(folder).relative_to(base).parts)
        if LOG_FOLDER in subfolders:
            found.append(folder)
            subfolders.clear()
        elif depth == _DEEPEST:
            subfolders.clear()
        subfolders[:] = sorted(name for name in subfolders if not name.startswith((".", "_")))
    return sorted(found)

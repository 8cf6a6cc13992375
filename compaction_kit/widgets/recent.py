"""The tables that were opened last: their names, in the user's cache folder."""

import json
import os
import re
from contextlib import suppress

from compaction_kit.errors import CompactionKitError
from compaction_kit.session import cache_folder
from compaction_kit.storage import is_folder, local_path

_MOST = 10
_MAY_HOLD_A_SECRET = re.compile(r"://[^/]*:[^/]*@|\?")


def recent_tables() -> list[str]:
    """Return paths and names of the tables opened last, the latest first, but local ones that are gone."""
    try:
        kept = json.loads((cache_folder() / "recent.json").read_text(encoding="utf-8"))
        return [name for name in kept if not name.startswith("/") or is_folder(name)]
    except (OSError, ValueError, TypeError, AttributeError):
        return []


def remember(name: str) -> None:
    """Put a table, by its path or name, before the others; not if its address may hold a password or key."""
    if _MAY_HOLD_A_SECRET.search(name):
        return
    with suppress(CompactionKitError):  # it is not on a local disk
        path = os.path.abspath(local_path(name))
        name = path if is_folder(path) else name
    names = [name, *(other for other in recent_tables() if other != name)][:_MOST]
    with suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        written = cache_folder() / f"recent.json.{os.getpid()}"
        written.write_text(json.dumps(names), encoding="utf-8")
        written.replace(cache_folder() / "recent.json")

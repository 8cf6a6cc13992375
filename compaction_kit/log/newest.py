"""Find the files that the latest version is read from, without a listing where that takes long.

Object stores list 1,000 files a request, one request after the other, and pyarrow can't begin at a name. So
of a long log the checkpoint that `_last_checkpoint` names is looked for, and the commits after it, all by
their names: many at once.
"""

import json
import time
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from compaction_kit.errors import StorageError
from compaction_kit.log.listing import (
    LOG_FOLDER,
    STAGED,
    LogFile,
    Segment,
    entries_of_log,
    file_of_entry,
    list_log,
    staged_commits,
)
from compaction_kit.log.reading import DAMAGE
from compaction_kit.storage import RemoteStore, Store

# Files that a request lists, and the version from which a log is taken to have more of them: Delta writes a
# checksum beside each commit.
_PAGE, _LONG = 1_000, 500
# How many commits are looked for at once. A log with more of them after its checkpoint is listed.
_AHEAD = (16, 64, 128)
# A table that was just opened is read next: the hint will do for that.
_FRESH_SECONDS = 5.0
_HINT = f"{LOG_FOLDER}/_last_checkpoint"


def look_at_log(store: Store) -> tuple[bool, bool]:
    """Return whether a log has files, and whether a catalog may have commits that aren't among them.

    Delta makes the folder of staged commits for every table (protocol, "Staged Commits").

    Raises:
        TableNotFoundError: As for `list_log`.
    """
    if isinstance(store, RemoteStore) and _may_be_long(store) and _checkpoint_of(store) is not None:
        return True, any(map(file_of_entry, store.entries_if_there(f"{LOG_FOLDER}/{STAGED}")))
    entries = entries_of_log(store)
    return any(map(file_of_entry, entries)), bool(staged_commits(store, entries))


def newest_files(store: Store, base: Segment | None = None) -> list[LogFile]:
    """Return files of a log, those of the latest version's segment among them; of a short log, all.

    Delta deletes no commit after the checkpoint that `_last_checkpoint` names (MetadataCleanup.scala), so
    that the first version without a commit ends the log, unless a later one has one: then it is listed.

    Args:
        store: The table's files.
        base: A segment that was read before.

    Raises:
        TableNotFoundError: As for `list_log`.
    """
    if not isinstance(store, RemoteStore) or not _may_be_long(store):
        return list_log(store)
    if base is not None and base.version >= _LONG:
        last = list(base.commits[-1:] or base.checkpoint)
        found = _ahead(store, [file.name for file in last], base.version)
        if found is not None and found[: len(last)] == last:
            return [*base.checkpoint, *base.commits, *found[len(last) :]]
    checkpoint = _checkpoint_of(store)
    found = None if checkpoint is None else _ahead(store, checkpoint[1], checkpoint[0])
    return list_log(store) if found is None else found


# For each log, the checkpoint that its hint named, and when that was read.
_SEEN: dict[str, tuple[float, tuple[int, list[str]]]] = {}


def _may_be_long(store: RemoteStore) -> bool:
    known = store.num_listed(LOG_FOLDER)
    return store.lists_by_page and (known is None or known >= _PAGE)


def _checkpoint_of(store: RemoteStore) -> tuple[int, list[str]] | None:
    """Return version and files of the checkpoint that the hint of a long log names; None if there is none."""
    read, known = _SEEN.get(store.root, (0.0, None))
    if time.monotonic() - read < _FRESH_SECONDS:
        return known
    try:
        hint: dict[str, Any] = json.loads(store.read_if_there(_HINT) or b"{}")
        version, parts = int(hint.get("version", 0)), int(hint.get("parts") or 0)
        v2 = (hint.get("v2Checkpoint") or {}).get("path")
    except (StorageError, *DAMAGE):
        # A listing tells more of what a store refuses.
        return None
    if version < _LONG:
        return None
    start = f"{version:020d}.checkpoint"
    if v2 is not None:
        names = [str(v2).rpartition("/")[2]]
    elif parts:
        names = [f"{start}.{part:010d}.{parts:010d}.parquet" for part in range(1, parts + 1)]
    else:
        names = [f"{start}.parquet"]
    _SEEN[store.root] = time.monotonic(), (version, names)
    return version, names


def _ahead(store: RemoteStore, names: Sequence[str], version: int) -> list[LogFile] | None:
    """Return files by their names, and the commits after a version.

    None if one of the files isn't there, or a commit before another, or if there are very many.
    """
    found: list[LogFile] = []
    for count in _AHEAD:
        commits = [f"{number:020d}.json" for number in range(version + 1, version + 1 + count)]
        entries = store.files_at(f"{LOG_FOLDER}/{name}" for name in [*names, *commits])
        files = [None if entry is None else file_of_entry(entry) for entry in entries]
        there = list(takewhile(lambda file: file is not None, files))
        if len(there) < len(names) or any(files[len(there) :]):
            return None
        found += [file for file in there if file is not None]
        if len(there) < len(files):
            return found
        names, version = [], version + count
    return None

"""From which version to which each file was live."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from compaction_kit.log.actions import CORE, file_actions
from compaction_kit.log.json_source import JsonSource, commit_blocks
from compaction_kit.log.names import Kind, LogFile
from compaction_kit.log.paths import decode_paths
from compaction_kit.log.segment import complete_checkpoints, find_segment
from compaction_kit.log.snapshot import Snapshot, read_snapshot

_COLUMNS = pa.schema(
    [
        ("path", pa.string()),
        ("deletion_vector_id", pa.string()),
        ("size_bytes", pa.int64()),
        ("added", pa.int64()),
        ("removed", pa.int64()),
    ]
)


def earliest_version(files: Sequence[LogFile]) -> int:
    """The oldest version that can be read back, with every commit from there on in the log.

    Raises:
        CorruptLogError: The latest version can't be read.
    """
    latest = find_segment(files).version
    commits = {f.version for f in files if f.kind is Kind.COMMIT}
    first = latest
    while first > 0 and first in commits:
        first -= 1
    if first in commits:
        return first
    return min(v for v in complete_checkpoints(files) if v >= first)


def file_lifetimes(table: Path, files: Sequence[LogFile]) -> tuple[Snapshot, pa.Table]:
    """Replay every commit since the earliest version that can be read.

    Args:
        table: The table's folder.
        files: The listing of its log.

    Returns:
        The snapshot of the earliest version, and one row for each time that a data file was
        live: path (decoded), deletion_vector_id, size_bytes, added (the version; that of the
        snapshot for files that were live by then) and removed (the first version without it;
        null if it is live).
    """
    earliest = earliest_version(files)
    snapshot = read_snapshot(table, find_segment(files, earliest))
    later = [f for f in files if f.kind is Kind.COMMIT and f.version is not None and f.version > earliest]
    live: dict[tuple[str, str | None], dict[str, Any]] = {}
    for action in _rows(snapshot.live, np.full(len(snapshot.live), earliest)):
        live[action["path"], action["deletion_vector_id"]] = _begin(action, earliest)
    ended: list[dict[str, Any]] = []
    # Within a commit removes go first: one that replaces a file's deletion vector names the
    # same path twice, under two keys.
    for action in _commit_rows(table, sorted(later, key=lambda f: f.version or 0)):
        key = action["path"], action["deletion_vector_id"]
        if not action["is_add"]:
            if key in live:
                ended.append(live.pop(key) | {"removed": action["version"]})
        elif key not in live:
            live[key] = _begin(action, action["version"])
    return snapshot, pa.Table.from_pylist(ended + list(live.values()), schema=_COLUMNS)


def _commit_rows(table: Path, commits: list[LogFile]) -> Iterator[dict[str, Any]]:
    """The file actions of commits, a commit after the other."""
    for block in commit_blocks(commits):
        source = JsonSource(table, block)
        actions = file_actions(source.rows(CORE), 0)
        rows = _rows(actions, source.versions()[actions["row"].to_numpy()])
        yield from sorted(rows, key=lambda row: (row["version"], row["is_add"]))


def _rows(actions: pa.Table, versions: np.ndarray) -> list[dict[str, Any]]:
    columns = ["is_add", "path", "deletion_vector_id", "size_bytes"]
    table = actions.select(columns).set_column(1, "path", decode_paths(actions["path"]))
    return table.append_column("version", pa.array(versions, pa.int64())).to_pylist()


def _begin(action: dict[str, Any], version: int) -> dict[str, Any]:
    kept = {name: action[name] for name in ("path", "deletion_vector_id", "size_bytes")}
    return kept | {"added": version, "removed": None}

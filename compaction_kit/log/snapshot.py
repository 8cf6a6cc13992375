"""The state of one version: which files are live, which are tombstones."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import CorruptLogError
from compaction_kit.log.actions import (
    CommitText,
    commit_file_actions,
    empty_file_actions,
    read_checkpoint,
    read_checkpoint_other,
    read_commit,
    read_stats,
)
from compaction_kit.log.metadata import Metadata, Protocol, check_readable
from compaction_kit.log.paths import decode_paths
from compaction_kit.log.segment import Segment


@dataclass(frozen=True)
class Snapshot:
    """The state of a table at a version.

    `live_files` and `tombstones` are file actions as `log.actions` describes them.
    """

    table: Path
    segment: Segment
    protocol: Protocol
    metadata: Metadata
    live_files: pa.Table
    tombstones: pa.Table

    @property
    def version(self) -> int:
        """The version."""
        return self.segment.version

    @cached_property
    def stats(self) -> pa.Array:
        """The stats of each live file as JSON text, read when first asked for; null for none."""
        return _take_stats(self.table, self.segment, self.live_files)

    @cached_property
    def num_records(self) -> pa.Array:
        """The records in each live file, deleted ones too, null where the log doesn't say."""
        return count_records(self.stats)


def read_snapshot(table: Path, segment: Segment) -> Snapshot:
    """Replay a checkpoint and its commits into the state of their version.

    Raises:
        CorruptLogError: A file is damaged, or no protocol or metadata action was found.
        UnsupportedTableError: The table needs a reader feature that isn't known here.
    """
    commits = [read_commit(table, file) for file in segment.commits]
    protocol, metadata = _protocol_and_metadata(table, segment, commits)
    check_readable(protocol)
    names = metadata.physical_names
    partitions = {column: names[column] for column in metadata.partition_columns}
    if segment.checkpoint:
        checkpoint = read_checkpoint(table, segment.checkpoint, partitions)
    else:
        checkpoint = empty_file_actions(partitions)
    actions = pa.concat_tables([checkpoint, commit_file_actions(commits, partitions)])
    newest = newest_actions(actions)
    live_files = newest.filter(newest["is_add"])
    tombstones = newest.filter(pc.invert(newest["is_add"]))
    return Snapshot(table, segment, protocol, metadata, live_files, tombstones)


def newest_actions(actions: pa.Table) -> pa.Table:
    """The newest action on each file, in the order of the log (protocol, "Action Reconciliation").

    The key is the decoded path with the id of the deletion vector.
    """
    keys = decode_paths(actions["path"])
    vectors = actions["deletion_vector_id"]
    if vectors.null_count < len(vectors):
        # No path holds a NUL, so that the two can't run into each other.
        keys = pc.binary_join_element_wise(keys, pc.fill_null(vectors, ""), "\0")
    order = np.argsort(actions["version"].to_numpy(), kind="stable")
    table = pa.table({"key": keys.take(pa.array(order)), "position": np.arange(len(order))})
    newest = table.group_by("key").aggregate([("position", "max")])["position_max"].to_numpy()
    return actions.take(pa.array(np.sort(order[newest])))


def count_records(stats: pa.Array) -> pa.Array:
    """The number of records in each stats text, null where it isn't said; deleted rows count too."""
    counts = [_num_records(text) for text in stats.to_pylist()]
    return pa.array(counts, pa.int64())


def _num_records(text: str | None) -> int | None:
    if not text:
        return None
    try:
        number = json.loads(text).get("numRecords")
    except (ValueError, AttributeError):
        return None
    return number if isinstance(number, int) else None


def _protocol_and_metadata(
    table: Path, segment: Segment, commits: list[CommitText]
) -> tuple[Protocol, Metadata]:
    found: dict[str, Any] = {}
    if segment.checkpoint:
        found["protocol"], found["metaData"] = read_checkpoint_other(table, segment.checkpoint)
    for commit in commits:
        for name, fields in commit.other_actions():
            if name in ("protocol", "metaData"):
                found[name] = fields
    for name in ("protocol", "metaData"):
        if not found.get(name):
            raise CorruptLogError(
                f"Version {segment.version} can't be read: the log holds no {name} action for it; "
                "restore the log from a backup."
            )
    try:
        return Protocol.of(found["protocol"]), Metadata.of(found["metaData"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptLogError(
            f"Version {segment.version} can't be read: its protocol or metaData action is damaged "
            f"({error!r}); restore the log from a backup."
        ) from error


def _take_stats(table: Path, segment: Segment, files: pa.Table) -> pa.Array:
    sources = files["source"].to_numpy()
    rows = files["row"].to_numpy()
    texts = read_stats(table, segment, set(np.unique(sources).tolist()))
    starts: dict[int, int] = {}
    for source in texts:
        starts[source] = sum(len(texts[before]) for before in starts)
    if not texts:
        return pa.array([], pa.string())
    positions = rows + np.array([starts[source] for source in sources.tolist()], dtype=np.int64)
    return pa.concat_arrays(texts.values()).take(pa.array(positions))

"""How long each data file was live: the version that added it, and the version that removed it."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import DAMAGE
from compaction_kit.log.actions import CORE, PARTITION, column, file_actions
from compaction_kit.log.listing import LogFile, commits_by_version, find_segment, readable_range
from compaction_kit.log.paths import one_array, places
from compaction_kit.log.protocol import Metadata
from compaction_kit.log.snapshot import Snapshot, file_keys, read_snapshot
from compaction_kit.log.sources import JsonSource, commit_sources
from compaction_kit.storage import Store

_CARDINALITY = "deletion_vector_cardinality"


def file_lifetimes(store: Store, files: Sequence[LogFile]) -> tuple[Snapshot, pa.Table]:
    """Replay every commit since the earliest version that can be read; see `TransactionLog.lifetimes`."""
    sources = commit_sources(store, [*commits_by_version(files).values()])
    first = read_snapshot(store, find_segment(files, readable_range(files).start))
    names = _partition_columns(first, sources)
    row = pa.array(np.arange(len(first.live)))
    actions = [_done_by(first.live, first.version, first.details(first.live, "add", names), row=row)]
    for source in sources:
        raw = source.rows([*CORE, _CARDINALITY, *names])
        found = file_actions(raw, 0)
        rows = one_array(found["row"])
        versions = np.array([file.version or 0 for file in source.files], np.int64)[source.file_of[rows]]
        deleted = pc.fill_null(column(raw, "add", _CARDINALITY), 0)
        records = pc.subtract(source.num_records(), deleted).take(rows)
        values = [column(raw, "add", name).take(rows) for name in names]
        part = _done_by(found, versions, values, num_records=records)
        actions.append(part.filter(pc.greater(part["version"], first.version)))
    return first, _lives(pa.concat_tables(actions), store)


def file_removals(store: Store, files: Sequence[LogFile]) -> list[pa.Table]:
    """Read the remove actions of all commits; see `TransactionLog.removals`."""
    removals = []
    for source in commit_sources(store, [*commits_by_version(files).values()]):
        raw = source.rows([*CORE, "deletion_timestamp"])
        actions = file_actions(raw, 0)
        removes = actions.filter(pc.invert(actions["is_add"]))
        times = column(raw, "remove", "deletion_timestamp").take(one_array(removes["row"]))
        removes = removes.select(["path", "deletion_vector_id"])
        removals.append(removes.append_column("deletion_timestamp", times))
    return removals


def _partition_columns(first: Snapshot, sources: Sequence[JsonSource]) -> list[str]:
    """Return all partition columns since a version, with the names that the log has for them."""
    schemas = [first.metadata]
    for action in (action for source in sources for action in source.first_of("metaData").values()):
        # Damaged metadata makes only its own versions unreadable, so it is skipped.
        with suppress(*DAMAGE):
            schemas.append(Metadata.of(action))
    return sorted({PARTITION + one.physical_names[name] for one in schemas for name in one.partition_columns})


def _done_by(
    actions: pa.Table, version: int | np.ndarray, partition: Sequence[pa.Array] = (), **known: pa.Array
) -> pa.Table:
    """Return file actions with their commit's version and other known columns, as `_lives` needs them."""
    columns = {name: actions[name] for name in ("is_add", "path", "deletion_vector_id", "size_bytes")}
    columns["version"] = pa.array(np.broadcast_to(version, len(actions)), pa.int64())
    columns |= {"num_records": pa.nulls(len(actions), pa.int64()), "row": pa.nulls(len(actions), pa.int64())}
    # Delta reads "" as null.
    values = [pc.fill_null(one, "") for one in partition] or [pa.repeat("", len(actions))]
    return pa.table(columns | known | {"partition": pc.binary_join_element_wise(*values, "\0")})


def _lives(actions: pa.Table, store: Store) -> pa.Table:
    """Pair each add with the action that ends the lifetime: a remove, or an add to another partition."""
    keys, partitions = (
        one_array(column).dictionary_encode().indices.to_numpy()
        for column in (file_keys(actions), actions["partition"])
    )
    is_add = actions["is_add"].to_numpy()
    versions = actions["version"].to_numpy()
    # Within a commit, removes come first: a commit that replaces a file's deletion vector names the
    # same path twice, with two keys.
    order = np.lexsort((is_add, versions, keys))
    keys, is_add, partitions = keys[order], is_add[order], partitions[order]
    was_live = np.append(False, is_add[:-1] & (keys[1:] == keys[:-1]))
    moves = np.append(False, partitions[1:] != partitions[:-1])
    changes = np.flatnonzero((is_add != was_live) | moves)
    begins = np.flatnonzero(is_add[changes])
    # The next change of the same key ends the lifetime.
    ends = np.minimum(begins + 1, len(changes) - 1)
    ended = (ends > begins) & (keys[changes[ends]] == keys[changes[begins]])
    lives = actions.take(pa.array(order[changes[begins]]))
    columns = {name: one_array(lives[name]) for name in ("deletion_vector_id", "size_bytes")}
    columns |= {"added": one_array(lives["version"])}
    columns |= {"removed": pa.array(versions[order[changes[ends]]], mask=~ended)}
    columns |= {name: one_array(lives[name]) for name in ("num_records", "row", "partition")}
    table = pa.table({"path": places(lives["path"], store), **columns})
    return table.sort_by([("added", "ascending"), ("path", "ascending")])

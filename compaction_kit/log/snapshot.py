"""The state of one version: live files, tombstones, protocol, metadata."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import DAMAGE, CorruptLogError, first_line
from compaction_kit.log.actions import (
    CORE,
    DETAILS,
    PARTITION,
    REMOVAL_FIELDS,
    TAG,
    column,
    field_of,
    file_actions,
    picked,
)
from compaction_kit.log.lines import Action
from compaction_kit.log.listing import Segment
from compaction_kit.log.paths import one_array
from compaction_kit.log.protocol import Metadata, Protocol, check_readable
from compaction_kit.log.sources import Source, checkpoint_sources, commit_sources, in_threads
from compaction_kit.storage import Store

_MOST_CHUNKS = 8
# Actions with a key field: the newest action of each key counts (protocol, "Action Reconciliation").
_KEYS = {"txn": "appId", "domainMetadata": "domain"}
Others = Mapping[tuple[str, str | None], Action]


@dataclass(frozen=True)
class Snapshot:
    """The state of a table at a version.

    `live` and `removes` are file actions (see `log.actions`): the adds of live files and the tombstones,
    in the order of the log. Their other fields are read only when they are needed. `others` are the
    newest actions without a data file, keyed by name and, for txn and domainMetadata, by appId and domain.
    """

    store: Store
    segment: Segment
    protocol: Protocol
    metadata: Metadata
    live: pa.Table
    removes: pa.Table
    others: Others = field(repr=False)
    sources: tuple[Source, ...] = field(repr=False)

    @property
    def version(self) -> int:
        """The version."""
        return self.segment.version

    @property
    def has_vectors(self) -> bool:
        """Whether a live file has a deletion vector."""
        vectors = self.live["deletion_vector_id"]
        return bool(vectors.null_count < len(vectors))

    @property
    def domains(self) -> dict[str | None, Action]:
        """The newest domainMetadata action of each domain, without removed ones."""
        found = {key: action for (name, key), action in self.others.items() if name == "domainMetadata"}
        return {domain: action for domain, action in found.items() if not action.get("removed")}

    @cached_property
    def live_files(self) -> pa.Table:
        """The live files with all details except stats; partition columns have their logical names."""
        return self._with_details(self.live, "add")

    @cached_property
    def tombstones(self) -> pa.Table:
        """The tombstones with all details except stats."""
        return self._with_details(self.removes, "remove")

    @cached_property
    def stats(self) -> pa.Array:
        """The stats of each live file as JSON text; null without stats."""
        return self._read(self.live, [pa.string()], lambda source: [source.stats()])[0]

    @cached_property
    def num_records(self) -> pa.Array:
        """The number of records in each live file, deleted ones included; null without stats."""
        return self._read(self.live, [pa.int64()], lambda source: [source.num_records()])[0]

    def _with_details(self, actions: pa.Table, kind: str) -> pa.Table:
        physical, partitioned = self.metadata.physical_names, self.metadata.partition_columns
        columns = self.details(
            actions, kind, [*DETAILS, *(PARTITION + physical[name] for name in partitioned)]
        )
        names = [*actions.column_names, *DETAILS, *(PARTITION + name for name in partitioned)]
        return pa.table([*actions.columns, *columns], names)

    def details(self, actions: pa.Table, kind: str, names: Sequence[str]) -> list[pa.Array]:
        """Read columns of some of the snapshot's adds or removes from the log; see `log.actions`."""

        def read(source: Source) -> list[pa.Array]:
            raw = source.rows(names)
            return [column(raw, kind, name) for name in names]

        return self._read(actions, [field_of(name)[1] for name in names], read)

    @cached_property
    def clustering_tags(self) -> pa.Table:
        """The tags that OPTIMIZE gave each live file when it clustered the table; null for other files.

        Columns: cube_id, cube_columns (the clustering columns as JSON), clustering_provider (string).
        """
        names = [f"{TAG}ZCUBE_ID", f"{TAG}ZCUBE_ZORDER_BY", "clustering_provider"]
        columns = self.details(self.live, "add", names)
        return pa.table(columns, ["cube_id", "cube_columns", "clustering_provider"])

    @cached_property
    def removal_fields(self) -> pa.Table:
        """The fields of each live file's add action that its remove action repeats; see `REMOVAL_FIELDS`."""
        return pa.table(self.details(self.live, "add", REMOVAL_FIELDS), REMOVAL_FIELDS)

    def adds(self, files: pa.Table) -> list[Action]:
        """Read the add actions of some of the live files with all their fields, as the log has them."""
        wanted = set(zip(files["source"].to_pylist(), files["row"].to_pylist(), strict=True))
        return [
            action["add"]
            for source in sorted({source for source, _ in wanted})
            for row, action in enumerate(self.sources[source].actions())
            if (source, row) in wanted
        ]

    def _read(
        self, actions: pa.Table, types: Sequence[pa.DataType], read: Callable[[Source], list[pa.Array]]
    ) -> list[pa.Array]:
        """Read columns from each source and return the values of some actions."""
        # Actions are in the order of the sources.
        source_of, rows = (actions[name].to_numpy() for name in ("source", "row"))
        starts = np.flatnonzero(np.diff(source_of, prepend=-1))

        def pick(number: int, rows: np.ndarray) -> list[pa.Array]:
            try:
                return [picked(values, pa.array(rows)) for values in read(self.sources[number])]
            except pa.ArrowIndexError:
                raise CorruptLogError(
                    f"A file of the log has fewer rows than when version {self.version} was read: read the "
                    "table again, or restore the file from a backup."
                ) from None

        parts = in_threads(pick, source_of[starts].tolist(), np.split(rows, starts[1:]))
        columns = zip(*parts, strict=True) if parts else ([pa.nulls(0, one)] for one in types)
        return [pa.concat_arrays(values) for values in columns]


def read_snapshot(store: Store, segment: Segment, base: Snapshot | None = None) -> Snapshot:
    """Replay a checkpoint and its commits, or the commits after a base, into the state of their version."""
    others: Others
    if base is None:
        commits, sources = segment.commits, checkpoint_sources(store, segment.checkpoint)
        live, removes, others = _newest_of(sources, 0)
    else:
        commits = tuple(file for file in segment.commits if (file.version or 0) > base.version)
        live, removes, others, sources = base.live, base.removes, base.others, list(base.sources)
    if commits:
        blocks = commit_sources(store, commits)
        added, removed, newer_others = _newest_of(blocks, len(sources))
        newer = file_keys(pa.concat_tables([added, removed]))
        live, removes = (
            _joined(without(older, newer), more) for older, more in ((live, added), (removes, removed))
        )
        others, sources = {**others, **newer_others}, [*sources, *blocks]
    for name in ("protocol", "metaData"):
        if not others.get((name, None)):
            raise CorruptLogError(
                f"Version {segment.version} can't be read: the log holds no {name} action for it; "
                "restore the log from a backup."
            )
    try:
        protocol = Protocol.of(others["protocol", None])
        metadata = Metadata.of(others["metaData", None])
    except DAMAGE as error:
        raise CorruptLogError(
            f"Version {segment.version} can't be read: its protocol or metaData action is damaged "
            f"({first_line(error)}); restore the log from a backup."
        ) from None
    check_readable(protocol)
    return Snapshot(store, segment, protocol, metadata, live, removes, others, tuple(sources))


def _newest_of(sources: Sequence[Source], first: int) -> tuple[pa.Table, pa.Table, Others]:
    """Return the newest adds, removes and other actions of sources, which are numbered from `first`."""
    tables = in_threads(lambda one: file_actions(one[1].rows(CORE), one[0]), [*enumerate(sources, first)])
    others = in_threads(lambda source: source.others, sources)
    empty = file_actions(pa.table({}), 0)
    actions = newest_actions(pa.concat_tables([empty, *tables]).combine_chunks())
    is_add = actions["is_add"]
    newest = {(n, one.get(_KEYS[n]) if n in _KEYS else None): one for found in others for n, one in found}
    if pc.all(is_add).as_py():
        return actions, actions.slice(0, 0), newest
    return actions.filter(is_add), actions.filter(pc.invert(is_add)), newest


def _joined(older: pa.Table, newer: pa.Table) -> pa.Table:
    """Concatenate two tables; the older rows, which are many, are copied only after several additions."""
    table = pa.concat_tables([older, newer])
    return table.combine_chunks() if table["path"].num_chunks > _MOST_CHUNKS else table


def newest_actions(actions: pa.Table) -> pa.Table:
    """Return the newest action on each file and deletion vector (protocol, "Action Reconciliation").

    Actions stay in the order of the log. Hashes of the keys show which files may have several actions,
    because comparing all keys takes longer.
    """
    keys = file_keys(actions)
    hashes = _hashes(keys)
    ordered = np.sort(hashes)
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(repeated):
        return actions
    several = pc.is_in(pa.array(hashes), value_set=pa.array(repeated)).to_numpy(zero_copy_only=False)
    rows = pa.array(np.flatnonzero(several))
    newest = pa.table({"key": keys.take(rows), "row": rows}).group_by("key").aggregate([("row", "max")])
    several[newest["row_max"].to_numpy()] = False
    return actions.filter(pa.array(~several))


def without(actions: pa.Table, keys: pa.Array) -> pa.Table:
    """Return the actions on files other than those with the given keys (see `file_keys`)."""
    if not len(keys) or not len(actions):
        return actions

    def kept(batch: pa.RecordBatch) -> pa.RecordBatch:
        replaced = pc.is_in(file_keys(pa.Table.from_batches([batch])), value_set=keys)
        return batch.filter(pc.invert(replaced)) if pc.any(replaced).as_py() else batch

    return pa.Table.from_batches([kept(batch) for batch in actions.to_batches()], actions.schema)


def file_keys(actions: pa.Table) -> pa.Array:
    """Return the key that identifies each action's file: its path and the id of its deletion vector."""
    paths, vectors = one_array(actions["path"]), one_array(actions["deletion_vector_id"])
    if vectors.null_count == len(vectors):
        return paths
    # No path contains NUL, so different pairs have different keys.
    return pc.coalesce(pc.binary_join_element_wise(paths, vectors, "\0"), paths)


def _hashes(keys: pa.Array) -> np.ndarray:
    """Return a hash of each text, from its length and its last 48 bytes, where the names of files differ."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    hashes = np.diff(offsets).astype(np.uint64)
    if not len(keys) or offsets[-1] - offsets[0] < 8:
        return hashes
    data = keys.buffers()[2]
    words = np.ndarray((data.size - 7,), np.uint64, data, strides=(1,))
    # A piece of this size stays in the processor's cache.
    for piece in range(0, len(keys), 1 << 16):
        part = slice(piece, piece + (1 << 16))
        starts, ends = offsets[:-1][part].astype(np.int64), offsets[1:][part].astype(np.int64)
        mixed = hashes[part]
        for k in range(1, 7):
            word = words[np.maximum(ends - 8 * k, np.minimum(starts, len(words) - 1))]
            mixed ^= np.where(ends - starts >= 8, word, 0)
            mixed *= np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
    return hashes

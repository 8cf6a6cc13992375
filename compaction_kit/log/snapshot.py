"""The state of one version: live files, tombstones, protocol and metadata."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import CorruptLogError
from compaction_kit.log.actions import CORE, PARTITION, column, file_actions, picked
from compaction_kit.log.json_source import JsonSource, commit_blocks
from compaction_kit.log.listing import LogFile, Segment
from compaction_kit.log.metadata import Metadata, Protocol, check_readable
from compaction_kit.log.reading import DAMAGE, first_line
from compaction_kit.log.reconcile import distinct_actions, newest_actions, without
from compaction_kit.log.sources import Source, checkpoint_sources
from compaction_kit.storage import Store

_MOST_CHUNKS = 8
# Actions of which the newest counts for each key (protocol, "Action Reconciliation").
_KEYS = {"txn": "appId", "domainMetadata": "domain"}
_DETAILS = ("modification_time", "deletion_timestamp", "data_change", "deletion_vector_cardinality")


@dataclass(frozen=True)
class Snapshot:
    """The state of a table at a version.

    `live` and `dead` are file actions (see `log.actions`): the adds of live files and the tombstones,
    in the order of the log. Their other fields are read only when they are needed. `transactions` are
    the newest txn actions by appId, `domains` the domainMetadata actions by domain, without removed ones.
    """

    store: Store
    segment: Segment
    protocol: Protocol
    metadata: Metadata
    live: pa.Table
    dead: pa.Table
    transactions: Mapping[str, Mapping[str, Any]]
    domains: Mapping[str, Mapping[str, Any]]
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

    @cached_property
    def live_files(self) -> pa.Table:
        """The live files with all details except stats; partition columns have their logical names."""
        return self._with_details(self.live, "add")

    @cached_property
    def tombstones(self) -> pa.Table:
        """The tombstones with all details except stats."""
        return self._with_details(self.dead, "remove")

    @cached_property
    def stats(self) -> pa.Array:
        """The stats of each live file as JSON text; null without stats."""
        if not len(self.live):
            return pa.array([], pa.string())
        return self._picked(self.live, lambda source: {"stats": source.stats()})["stats"]

    @cached_property
    def num_records(self) -> pa.Array:
        """The number of records in each live file, deleted ones included; null without stats."""
        if not len(self.live):
            return pa.array([], pa.int64())
        return self._picked(self.live, lambda source: {"num_records": source.num_records()})["num_records"]

    def _with_details(self, actions: pa.Table, kind: str) -> pa.Table:
        physical = self.metadata.physical_names
        partitions = {
            PARTITION + name: PARTITION + physical[name] for name in self.metadata.partition_columns
        }
        columns = self._details(actions, kind, [*_DETAILS, *partitions.values()])
        for name in _DETAILS:
            actions = actions.append_column(name, columns[name])
        for name, physical_name in partitions.items():
            actions = actions.append_column(name, columns[physical_name])
        return actions

    def _details(self, actions: pa.Table, kind: str, names: list[str]) -> dict[str, pa.Array]:
        """Read columns of some actions from the files of the log that hold them."""

        def read(source: Source) -> dict[str, pa.Array]:
            raw = source.rows(names)
            return {name: column(raw, kind, name) for name in names}

        if not len(actions):
            return {name: column(pa.table({}), kind, name) for name in names}
        return self._picked(actions, read)

    def _picked(
        self, actions: pa.Table, read: Callable[[Source], dict[str, pa.Array]]
    ) -> dict[str, pa.Array]:
        """Read columns from each source and return the values of some actions, in their order."""
        source_of, rows = actions["source"].to_numpy(), actions["row"].to_numpy()
        needed, inverse = np.unique(source_of, return_inverse=True)

        def pick(number: int) -> dict[str, pa.Array]:
            wanted = pa.array(rows[source_of == number])
            try:
                return {name: picked(values, wanted) for name, values in read(self.sources[number]).items()}
            except pa.ArrowIndexError:
                raise CorruptLogError(
                    f"A file of the log has fewer rows than when version {self.version} was read from it: "
                    "restore it from a backup."
                ) from None

        with ThreadPoolExecutor() as pool:
            parts = list(pool.map(pick, needed.tolist()))
        columns = {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}
        if np.all(inverse[1:] >= inverse[:-1]):
            return columns
        # From the order of the sources to that of the actions.
        order = pa.array(np.argsort(np.argsort(inverse, kind="stable"), kind="stable"))
        return {name: values.take(order) for name, values in columns.items()}


def read_snapshot(store: Store, segment: Segment, base: Snapshot | None = None) -> Snapshot:
    """Replay a checkpoint and its commits into the state of their version.

    Args:
        store: The table's files.
        segment: The files to read.
        base: A snapshot of an older version; only later commits of the segment are read.

    Raises:
        CorruptLogError: A file is damaged, or there is no protocol or metaData action.
        UnsupportedTableError: The table needs a reader feature that isn't known here.
    """
    commits = [f for f in segment.commits if base is None or (f.version or 0) > base.version]
    start = _read_checkpoint(store, segment) if base is None else _State.of(base)
    state = _replay(store, start, commits)
    protocol, metadata = state.protocol_and_metadata(segment.version)
    check_readable(protocol)
    transactions, domains = (state.other.get(name, {}) for name in _KEYS)
    domains = {name: domain for name, domain in domains.items() if not domain.get("removed")}
    return Snapshot(
        store, segment, protocol, metadata, state.live, state.dead, transactions, domains, state.sources
    )


@dataclass(frozen=True)
class _State:
    """The state replayed so far; protocol and metaData actions may not be parsed yet."""

    live: pa.Table
    dead: pa.Table
    sources: tuple[Source, ...]
    other: dict[str, Any]

    @classmethod
    def of(cls, snapshot: Snapshot) -> "_State":
        other = {
            "protocol": snapshot.protocol,
            "metaData": snapshot.metadata,
            "txn": snapshot.transactions,
            "domainMetadata": snapshot.domains,
        }
        return cls(snapshot.live, snapshot.dead, snapshot.sources, other)

    def protocol_and_metadata(self, version: int) -> tuple[Protocol, Metadata]:
        for name in ("protocol", "metaData"):
            if not self.other.get(name):
                raise CorruptLogError(
                    f"Version {version} can't be read: the log holds no {name} action for it; "
                    "restore the log from a backup."
                )
        protocol, metadata = self.other["protocol"], self.other["metaData"]
        try:
            return (
                protocol if isinstance(protocol, Protocol) else Protocol.of(protocol),
                metadata if isinstance(metadata, Metadata) else Metadata.of(metadata),
            )
        except DAMAGE as error:
            raise CorruptLogError(
                f"Version {version} can't be read: its protocol or metaData action is damaged "
                f"({first_line(error)}); restore the log from a backup."
            ) from None


def _read_checkpoint(store: Store, segment: Segment) -> _State:
    nothing = file_actions(pa.table({}), 0)
    if not segment.checkpoint:
        return _State(nothing, nothing, (), {})
    sources = checkpoint_sources(store, segment.checkpoint)
    actions, other = _read_sources(sources, 0)
    return _State(*_split(distinct_actions(actions)), tuple(sources), other)


def _replay(store: Store, start: _State, commits: list[LogFile]) -> _State:
    if not commits:
        return start
    partitions = _partition_names(store, start, commits[0])
    first = len(start.sources)

    def read(block: list[LogFile]) -> Source:
        return JsonSource(store, block, partitions)

    with ThreadPoolExecutor() as pool:
        sources = list(pool.map(read, commit_blocks(commits)))
    actions, other = _read_sources(sources, first)
    newer = newest_actions(actions)
    live, dead = _split(newer)
    return _State(
        _joined(without(start.live, newer), live),
        _joined(without(start.dead, newer), dead),
        (*start.sources, *sources),
        _newest(start.other, other),
    )


def _read_sources(sources: Sequence[Source], first: int) -> tuple[pa.Table, dict[str, Any]]:
    with ThreadPoolExecutor() as pool:
        tables = list(
            pool.map(lambda source, number: file_actions(source.rows(CORE), number), sources, count(first))
        )
        others = list(pool.map(lambda source: list(source.other_actions()), sources))
    other: dict[str, Any] = {}
    for actions in others:
        for name, action in actions:
            if name in _KEYS:
                other.setdefault(name, {})[action.get(_KEYS[name])] = action
            elif name != "sidecar":
                other[name] = action
    return pa.concat_tables(tables).combine_chunks(), other


def _joined(older: pa.Table, newer: pa.Table) -> pa.Table:
    """Concatenate both; the many older rows are copied only after several additions."""
    table = pa.concat_tables([older, newer])
    return table.combine_chunks() if table["path"].num_chunks > _MOST_CHUNKS else table


def _newest(older: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any]:
    """Return the newest of the actions without a data file."""
    merged = {name: {**older.get(name, {}), **newer.get(name, {})} for name in _KEYS}
    return older | newer | merged


def _split(actions: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split file actions into adds and removes."""
    is_add = actions["is_add"]
    if pc.all(is_add).as_py():
        return actions, actions.slice(0, 0)
    return actions.filter(is_add), actions.filter(pc.invert(is_add))


def _partition_names(store: Store, start: _State, first: LogFile) -> list[str]:
    """Return the partition columns to keep; those of a later metaData action may have to be read again."""
    action = start.other.get("metaData")
    if action is None:
        others = dict(JsonSource(store, [first]).other_actions())
        action = others.get("metaData")
    if action is None:
        return []
    try:
        metadata = action if isinstance(action, Metadata) else Metadata.of(action)
    except DAMAGE:
        # A later action may replace it; otherwise protocol_and_metadata raises the error.
        return []
    return [PARTITION + metadata.physical_names[name] for name in metadata.partition_columns]

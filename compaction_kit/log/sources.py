"""The files of a log that hold file actions, read column by column, as often as columns are wanted."""

import json
import posixpath
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compaction_kit.errors import CompactionKitError, CorruptLogError
from compaction_kit.log.actions import OTHERS, check_columns, checked, column, count_records, parquet_columns
from compaction_kit.log.json_source import JsonSource
from compaction_kit.log.listing import LOG_FOLDER, LogFile
from compaction_kit.log.paths import one_array
from compaction_kit.log.reading import DAMAGE, first_line, open_checked
from compaction_kit.storage import Store

_BATCH_ROWS = 1 << 16
# Each share of the row groups opens its file, and so reads the footer, once.
_MOST_SHARES = 16


class Source(Protocol):
    """Rows of the log, the same rows in the same order at each reading."""

    @property
    def size_bytes(self) -> int:
        """Size of the files with the rows, in bytes."""

    def rows(self, names: Iterable[str]) -> pa.Table:
        """Return the rows with these columns, for `actions.file_actions` and `actions.column`."""

    def num_records(self) -> pa.Array:
        """Return the number of records in each row's file, int64; null unless it is an add with stats."""

    def stats(self) -> pa.Array:
        """Return the stats of each row's file as JSON text; null unless it is an add with stats."""

    def other_actions(self, names: Collection[str] = OTHERS) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the name and fields of actions without a data file, and of sidecars: of these names."""

    def actions(self) -> Iterator[dict[str, Any]]:
        """Yield every action with all fields: an object with the action's name as key."""

    def is_there(self, places: Set[str]) -> bool:
        """Return whether the log still has the files of these rows, given the places of its files."""


def checkpoint_sources(store: Store, files: Sequence[LogFile]) -> list[Source]:
    """Return the sources of a checkpoint: its own files and the sidecars of a V2 checkpoint."""
    own: list[Source] = list(store.at_once(partial(_checkpoint_file, store), files))
    return own + list(store.at_once(partial(ParquetSource, store), _sidecars(own)))


def sidecar_names(store: Store, files: Sequence[LogFile]) -> set[str]:
    """Return the names in the log of a checkpoint's sidecars, if it has any."""
    folder = f"{store.place(LOG_FOLDER)}/"
    paths = map(store.place, _sidecars([_checkpoint_file(store, file) for file in files]))
    return {path.removeprefix(folder) for path in paths if path.startswith(folder)}


def checkpoint_actions(store: Store, files: Sequence[LogFile]) -> Iterator[dict[str, Any]]:
    """Yield every action of a checkpoint and then of its sidecars, as a commit would write it."""
    for source in checkpoint_sources(store, files):
        yield from source.actions()


def _checkpoint_file(store: Store, file: LogFile) -> "JsonSource | ParquetSource":
    return JsonSource(store, [file]) if file.name.endswith(".json") else ParquetSource(store, file.place)


def _sidecars(sources: Iterable[Source]) -> list[str]:
    """Return the paths of the sidecars that a checkpoint's own files name."""
    actions = [action for source in sources for _, action in source.other_actions(["sidecar"])]
    # A path is absolute, or the name of a file in _sidecars.
    return [posixpath.join(LOG_FOLDER, "_sidecars", action["path"]) for action in actions]


class ParquetSource:
    """One Parquet file of a checkpoint; its rows have no columns that the file lacks.

    On a store the file is fetched once, and kept in memory as long as the snapshots that need it.
    """

    def __init__(self, store: Store, place: str):
        self._store, self._place = store, place
        with self._errors():
            self._data = None if store.is_local else pa.py_buffer(store.read(place))

    @property
    def size_bytes(self) -> int:
        """See `Source`."""
        if self._data is not None:
            return int(self._data.size)
        found = self._store.status(self._place)
        return 0 if found is None else found.size_bytes

    def rows(self, names: Iterable[str]) -> pa.Table:
        """See `Source`."""
        wanted = list(names)
        with self._open() as file:
            raw = file.read(columns=parquet_columns(wanted))
            check_columns(raw, wanted)
            return raw

    def num_records(self) -> pa.Array:
        """See `Source`."""
        raw = self.rows(["size_bytes", "stats_num_records"])
        parsed = column(raw, "add", "stats_num_records")
        known = pc.or_(parsed.is_valid(), column(raw, "add", "size_bytes").is_null())
        if pc.all(known).as_py():
            return parsed
        with self._open() as file:
            num_groups = file.num_row_groups
        shares = np.array_split(np.arange(num_groups), min(num_groups, _MOST_SHARES))
        # Stats as text may not fit in memory, so they are read in batches.
        with ThreadPoolExecutor() as pool:
            counted = [part for parts in pool.map(self._count_groups, shares) for part in parts]
        return pc.coalesce(parsed, pa.concat_arrays(counted)) if counted else parsed

    def stats(self) -> pa.Array:
        """See `Source`."""
        texts = column(self.rows(["stats"]), "add", "stats")
        with self._open() as file:
            parsed = file.read(columns=["add.stats_parsed"])
        if "add" not in parsed.column_names:
            return texts
        adds = one_array(parsed["add"])
        return (
            pa.array(
                [
                    json.dumps(_without_nulls(add["stats_parsed"]), default=str)
                    if text is None and add is not None and add["stats_parsed"] is not None
                    else text
                    for text, add in zip(texts.to_pylist(), adds.to_pylist(), strict=True)
                ],
                pa.string(),
            )
            if _lacks_text(texts, adds)
            else texts
        )

    def is_there(self, places: Set[str]) -> bool:
        """See `Source`."""
        return self._place in places

    def other_actions(self, names: Collection[str] = OTHERS) -> Iterator[tuple[str, dict[str, Any]]]:
        """See `Source`."""
        with self._open() as file:
            kinds = [field for field in file.schema_arrow if field.name in names]
            if not kinds:
                return
            raw = file.read_row_groups(_groups_with(file, kinds), columns=[kind.name for kind in kinds])
            actions = [
                (name, checked(name, action))
                for name in raw.column_names
                for action in raw[name].drop_null().to_pylist(maps_as_pydicts="strict")
            ]
        yield from actions

    def actions(self) -> Iterator[dict[str, Any]]:
        """See `Source`."""
        with self._open() as file:
            for batch in file.iter_batches(_BATCH_ROWS):
                for row in batch.to_pylist(maps_as_pydicts="strict"):
                    yield _without_nulls(row)

    def _count_groups(self, groups: np.ndarray) -> list[pa.Array]:
        with self._open() as file:
            columns = parquet_columns(["stats"])
            batches = file.iter_batches(_BATCH_ROWS, groups.tolist(), columns, use_threads=False)
            return [count_records(column(pa.Table.from_batches([b]), "add", "stats")) for b in batches]

    @contextmanager
    def _open(self) -> Iterator[pq.ParquetFile]:
        with self._errors():
            if self._data is not None:
                yield pq.ParquetFile(pa.BufferReader(self._data), page_checksum_verification=True)
                return
            with open_checked(self._store, self._place) as file:
                yield pq.ParquetFile(file, page_checksum_verification=True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except CompactionKitError:
            raise
        except (OSError, *DAMAGE) as error:
            raise CorruptLogError(
                f"The checkpoint file {posixpath.basename(self._place)} can't be read: {first_line(error)}."
            ) from None


def _lacks_text(texts: pa.Array, adds: pa.Array) -> bool:
    """Return whether an add has its stats only in parsed form."""
    return bool(pc.any(pc.and_(texts.is_null(), pc.struct_field(adds, [0]).is_valid())).as_py())


def _without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    """Return an action's fields as a commit writes them, without nulls."""
    return {
        name: _without_nulls(value) if isinstance(value, dict) and name != "partitionValues" else value
        for name, value in fields.items()
        if value is not None
    }


def _groups_with(file: pq.ParquetFile, kinds: Sequence[pa.Field]) -> list[int]:
    """Return the row groups that hold actions of some kinds, by one column of each.

    Not by statistics: where these are damaged, pyarrow ends the process.
    """
    rows = file.read(columns=list(map(_plainest, kinds)))
    found = [pc.indices_nonzero(column.is_valid()).to_numpy() for column in rows.columns]
    counts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    groups = np.searchsorted(np.cumsum(counts), np.concatenate([*found, []]), side="right")
    return np.unique(groups).tolist()


def _plainest(kind: pa.Field) -> str:
    """Return the path of one column of an action, if that is possible."""
    fields = (
        sorted(kind.type, key=lambda field: pa.types.is_nested(field.type))
        if pa.types.is_struct(kind.type)
        else []
    )
    return ".".join([kind.name, *(field.name for field in fields[:1])])

"""Columns of data files that the schema no longer has: REORG … APPLY (PURGE) drops them with deleted rows."""

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compaction_kit.errors import StorageError, UnsupportedTableError, first_line
from compaction_kit.files import Files
from compaction_kit.log.paths import is_remote, places
from compaction_kit.log.protocol import Metadata
from compaction_kit.storage import Store
from compaction_kit.text import format_count

# Files have these columns although the schema hasn't (MaterializedRowId, MaterializedRowCommitVersion).
_ROW_TRACKING = [f"delta.rowTracking.materializedRow{name}ColumnName" for name in ("Id", "CommitVersion")]


def dropped_columns(store: Store, files: Files) -> np.ndarray:
    """Return the bytes of each file's dropped columns, int64; -1 for a file that has none.

    Footers are read only if a column was ever dropped (ReorgTableHelper.fileHasExtraColumns).

    Raises:
        UnsupportedTableError: Files are outside of the table's folder.
        StorageError: A footer can't be read.
    """
    metadata = files.snapshot.metadata
    if not metadata.may_have_dropped_columns:
        return np.full(files.num_files, -1)
    paths = places(files.paths(np.arange(files.num_files)), store)
    if far := pc.sum(is_remote(paths)).as_py():
        raise UnsupportedTableError(
            f"{format_count(far, 'file')} outside of the table's folder may have dropped columns, which is "
            "unknown: run REORG TABLE … APPLY (PURGE) in SQL."
        )
    found = store.at_once(partial(_dropped_in, store, metadata), paths.to_pylist())
    return np.fromiter(found, np.int64, files.num_files)


def _dropped_in(store: Store, metadata: Metadata, place: str) -> int:
    try:
        with store.open(place) as file:
            footer = pq.read_metadata(file)
    except (OSError, pa.ArrowException) as error:
        raise StorageError(
            f"The footer of {store.place(place)} can't be read ({first_line(error)}), and REORG reads all "
            "footers: restore a version without this file."
        ) from None
    row = pa.struct(list(footer.schema.to_arrow_schema()))
    # Parquet numbers its columns in the order of the leaves.
    dropped = np.flatnonzero(_dropped_leaves(row, metadata.schema, metadata)).tolist()
    groups = map(footer.row_group, range(footer.num_row_groups))
    total = sum(group.column(i).total_compressed_size for group in groups for i in dropped)
    return total if dropped else -1


def _dropped_leaves(kind: pa.DataType, known: Any, metadata: Metadata) -> list[bool]:
    """Return for each leaf column of a type whether `known`, its Delta type or None, has no such column."""
    if not pa.types.is_nested(kind):
        return [known is None]
    if not isinstance(known, dict) or known["type"] == "udt":
        # Delta doesn't look into a variant, or a type of the user's.
        children = [(kind.field(i).type, known) for i in range(kind.num_fields)]
    elif known["type"] == "struct":
        fields = {metadata.physical_name(field).lower(): field["type"] for field in known["fields"]}
        names = filter(None, map(metadata.configuration.get, _ROW_TRACKING))
        fields |= dict.fromkeys(map(str.lower, names), "long")
        children = [(child.type, fields.get(child.name.lower())) for child in kind]
    elif known["type"] == "map":
        children = [(kind.key_type, known["keyType"]), (kind.item_type, known["valueType"])]
    else:
        children = [(kind.value_type, known["elementType"])]
    return [leaf for child, found in children for leaf in _dropped_leaves(child, found, metadata)]

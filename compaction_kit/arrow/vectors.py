"""What the log says of the rows of live files: their deletion vectors, their ids and versions."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from compaction_kit.arrow.worker.vectors import Vector
from compaction_kit.files import Files
from compaction_kit.log.actions import field_of
from compaction_kit.log.paths import TO_RFC1924, deletion_vector_file
from compaction_kit.log.protocol import Metadata
from compaction_kit.storage import Store

_MATERIALIZED = ("materializedRowIdColumnName", "materializedRowCommitVersionColumnName")
# As in add and remove actions: deletionVector, baseRowId, defaultRowCommitVersion, as far as a file has them.
RowFields = dict[str, Any]


def row_fields(source: Files, positions: np.ndarray) -> list[RowFields]:
    """Return the fields of files' add actions that only some have, and their remove actions repeat."""
    snapshot = source.snapshot
    if not snapshot.has_vectors and "rowTracking" not in snapshot.protocol.writer_features:
        return [{}] * len(positions)
    rows = snapshot.removal_fields.take(pa.array(source.in_snapshot(positions))).to_pylist()
    found: list[RowFields] = [{} for _ in rows]
    for fields, row in zip(found, rows, strict=True):
        for name, value in row.items():
            outer, _, inner = field_of(name)[0].partition(".")
            if value is not None and inner:
                fields.setdefault(outer, {})[inner] = value
            elif value is not None:
                fields[outer] = value
    return found


def found_vector(descriptor: dict[str, Any] | None, store: Store) -> tuple[Any, ...] | None:
    """Return where a deletion vector is, or its bytes if it is inline, as a tuple of `Vector`'s fields.

    `descriptor` is as in the log (protocol, "Deletion Vector Descriptor Schema"); None without one.
    """
    if descriptor is None:
        return None
    kind, name, size = (descriptor[key] for key in ("storageType", "pathOrInlineDv", "sizeInBytes"))
    offset, cardinality = descriptor.get("offset", 0), descriptor["cardinality"]
    if place := deletion_vector_file(f"{kind}{name}@{offset}", store):
        return tuple(Vector(b"", store.place(place), offset, size, cardinality))
    inline = base64.b85decode(name.encode().translate(TO_RFC1924))[:size]
    return tuple(Vector(inline, "", offset, size, cardinality))


def is_far(vector_id: str | None, store: Store) -> bool:
    """Return whether a deletion vector, by its id in the log, is in a file that the store doesn't reach."""
    return "://" in (deletion_vector_file(vector_id, store) or "")


def row_ids(fields: RowFields, tracking: Sequence[str]) -> dict[str, int]:
    """Return what a file's rows have where its columns for row ids and row commit versions have nothing."""
    return dict(zip(tracking, (fields["baseRowId"], fields["defaultRowCommitVersion"]), strict=True))


def tracking_columns(metadata: Metadata) -> list[str]:
    """Return the columns of data files for row ids and row commit versions; none if rows aren't tracked.

    Rows without values there have baseRowId and their number in the file, and defaultRowCommitVersion
    (protocol, "Row Tracking"; RowTracking.preserveRowTrackingColumns).
    """
    configuration = metadata.configuration
    if configuration.get("delta.enableRowTracking", "").lower() != "true":
        return []
    return [configuration[f"delta.rowTracking.{name}"] for name in _MATERIALIZED]

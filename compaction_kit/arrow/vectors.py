"""What the log says of the rows of live files: their deletion vectors, their ids and versions."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from compaction_kit.arrow.worker.vectors import Numbered, Vector
from compaction_kit.files import Files
from compaction_kit.log.actions import REMOVAL_FIELDS, field_of
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
    found: list[RowFields] = []
    for row in rows:
        found.append({})
        for name in REMOVAL_FIELDS:
            outer, _, inner = field_of(name)[0].partition(".")
            if row[name] is not None and inner:
                found[-1].setdefault(outer, {})[inner] = row[name]
            elif row[name] is not None:
                found[-1][outer] = row[name]
    return found


def numbered(fields: RowFields, tracking: Sequence[str], store: Store) -> Numbered:
    """Return what goes by the numbers of a file's rows; `tracking` as from `tracking_columns`."""
    descriptor = fields.get("deletionVector")
    ids = [fields[name] for name in ("baseRowId", "defaultRowCommitVersion") if tracking]
    vector = tuple(found_vector(descriptor, store)) if descriptor else None
    return vector, dict(zip(tracking, ids, strict=True))


def found_vector(descriptor: dict[str, Any], store: Store) -> Vector:
    """Return where a deletion vector is, or its bytes if it is inline.

    `descriptor` is as in the log (protocol, "Deletion Vector Descriptor Schema").
    """
    kind, name, size = (descriptor[key] for key in ("storageType", "pathOrInlineDv", "sizeInBytes"))
    offset, cardinality = descriptor.get("offset", 0), descriptor["cardinality"]
    if place := deletion_vector_file(kind + name, store):
        return Vector(b"", store.place(place), offset, size, cardinality)
    inline = base64.b85decode(name.encode().translate(TO_RFC1924))[:size]
    return Vector(inline, "", offset, size, cardinality)


def is_far(descriptor: dict[str, Any], store: Store) -> bool:
    """Return whether a deletion vector is in a file that the store doesn't reach."""
    return "://" in (
        deletion_vector_file(descriptor["storageType"] + descriptor["pathOrInlineDv"], store) or ""
    )


def tracking_columns(metadata: Metadata) -> list[str]:
    """Return the columns of data files for row ids and row commit versions; none if rows aren't tracked.

    Rows without values there have baseRowId and their number in the file, and defaultRowCommitVersion
    (protocol, "Row Tracking"; RowTracking.preserveRowTrackingColumns).
    """
    configuration = metadata.configuration
    if configuration.get("delta.enableRowTracking", "").lower() != "true":
        return []
    return [configuration[f"delta.rowTracking.{name}"] for name in _MATERIALIZED]

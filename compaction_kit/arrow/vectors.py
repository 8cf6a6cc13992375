"""The deletion vectors of live files, as the log describes them and as tasks read them."""

import base64
from typing import Any

import numpy as np
import pyarrow as pa

from compaction_kit.arrow.worker.vectors import Vector
from compaction_kit.files import Files
from compaction_kit.log.paths import TO_RFC1924, deletion_vector_file
from compaction_kit.storage import Store

# As in add and remove actions (protocol, "Deletion Vector Descriptor Schema").
Descriptor = dict[str, Any]


def descriptors(source: Files, positions: np.ndarray) -> list[Descriptor | None]:
    """Return the descriptors of some files' deletion vectors; None for files without one."""
    if not source.snapshot.has_vectors:
        return [None] * len(positions)
    rows = source.snapshot.vectors.take(pa.array(source.in_snapshot(positions))).to_pylist()
    found = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return [descriptor or None for descriptor in found]


def found_vector(descriptor: Descriptor, store: Store) -> Vector:
    """Return where a deletion vector is, or its bytes if it is inline."""
    kind, name, size = (descriptor[key] for key in ("storageType", "pathOrInlineDv", "sizeInBytes"))
    offset, cardinality = descriptor.get("offset", 0), descriptor["cardinality"]
    if place := deletion_vector_file(kind + name, store):
        return Vector(b"", store.place(place), offset, size, cardinality)
    inline = base64.b85decode(name.encode().translate(TO_RFC1924))[:size]
    return Vector(inline, "", offset, size, cardinality)

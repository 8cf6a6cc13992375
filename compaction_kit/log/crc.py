"""Compare Delta's checksum file of a version with the log (protocol, "Version Checksum File")."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.log.metadata import Metadata, Protocol
from compaction_kit.log.snapshot import Snapshot

_SCHEMA = pa.schema(
    [("field", pa.string()), ("checksum", pa.string()), ("log", pa.string()), ("same", pa.bool_())]
)
# The lower bounds of Delta's buckets (DeletedRecordCountsHistogramUtils).
_DELETED_BINS = [0, 1, *(10**i for i in range(1, 8)), 2**31 - 1]


def compare_checksum(
    snapshot: Snapshot, checksum: Mapping[str, Any], in_commit_timestamp: int | None = None
) -> pa.Table:
    """Compare a version's checksum file with the log, field by field.

    Args:
        snapshot: The state of the version.
        checksum: The content of its .crc file.
        in_commit_timestamp: That of the version's commit, in ms since 1970; None if it has none
            or the commit was deleted.

    Returns:
        One row per field of the checksum file: field (string), checksum and log (string: the values as
        JSON text, files as their number), same (bool; null for fields that the log's file actions
        don't determine, such as txnId).
    """
    rows = []
    for name, value in checksum.items():
        if value is None:
            continue
        if name == "inCommitTimestampOpt" and in_commit_timestamp is not None:
            expected, found = value, in_commit_timestamp
        elif name in _FIELDS:
            expected, found = _FIELDS[name](snapshot, value)
        else:
            rows.append({"field": name, "checksum": json.dumps(value)})
            continue
        rows.append(
            {
                "field": name,
                "checksum": _shown(expected),
                "log": _shown(found),
                "same": expected == found,
            }
        )
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _shown(value: Any) -> str:
    if isinstance(value, Metadata | Protocol):
        return repr(value)
    return f"{len(value):,} files" if isinstance(value, set) else json.dumps(value)


def _vectors(snapshot: Snapshot) -> np.ndarray:
    """Return the number of rows that deletion vectors delete from each live file; 0 without one."""
    cardinality = snapshot.live_files["deletion_vector_cardinality"]
    counts: np.ndarray = pc.fill_null(cardinality, 0).to_numpy()
    return counts


def _histogram(snapshot: Snapshot, value: Mapping[str, Any]) -> tuple[Any, Any]:
    edges = value["sortedBinBoundaries"]
    sizes = snapshot.live["size_bytes"].to_numpy()
    bins = np.searchsorted(edges, sizes, side="right") - 1
    counts = np.bincount(bins, minlength=len(edges))
    totals = np.zeros(len(edges), dtype=np.int64)
    np.add.at(totals, bins, sizes)
    return dict(value), {
        "sortedBinBoundaries": edges,
        "fileCounts": counts.tolist(),
        "totalBytes": totals.tolist(),
    }


def _deleted_histogram(snapshot: Snapshot, value: Mapping[str, Any]) -> tuple[Any, Any]:
    bins = np.searchsorted(_DELETED_BINS, _vectors(snapshot), side="right") - 1
    return dict(value), {"deletedRecordCounts": np.bincount(bins, minlength=len(_DELETED_BINS)).tolist()}


def _all_files(snapshot: Snapshot, value: list[dict[str, Any]]) -> tuple[Any, Any]:
    def vector_id(vector: Mapping[str, Any] | None) -> str | None:
        if not vector:
            return None
        offset = vector.get("offset")
        return f"{vector['storageType']}{vector['pathOrInlineDv']}" + (f"@{offset}" if offset else "")

    live = snapshot.live.select(["path", "deletion_vector_id", "size_bytes"]).to_pydict()
    expected = {(add["path"], vector_id(add.get("deletionVector")), add["size"]) for add in value}
    return expected, set(zip(*live.values(), strict=True))


def _in_order(actions: Any, key: str) -> list[dict[str, Any]]:
    return sorted(
        ({name: value for name, value in action.items() if value is not None} for action in actions),
        key=lambda action: action[key],
    )


# For each field: the value of the checksum file and of the log, in comparable form.
_FIELDS: dict[str, Callable[[Snapshot, Any], tuple[Any, Any]]] = {
    "tableSizeBytes": lambda s, v: (v, pc.sum(s.live["size_bytes"]).as_py() or 0),
    "numFiles": lambda s, v: (v, len(s.live)),
    "numMetadata": lambda s, v: (v, 1),
    "numProtocol": lambda s, v: (v, 1),
    "numDeletedRecordsOpt": lambda s, v: (v, int(_vectors(s).sum())),
    "numDeletionVectorsOpt": lambda s, v: (v, pc.count(s.live["deletion_vector_id"]).as_py()),
    "setTransactions": lambda s, v: (_in_order(v, "appId"), _in_order(s.transactions.values(), "appId")),
    "domainMetadata": lambda s, v: (_in_order(v, "domain"), _in_order(s.domains.values(), "domain")),
    "metadata": lambda s, v: (Metadata.of(v), s.metadata),
    "protocol": lambda s, v: (Protocol.of(v), s.protocol),
    "histogramOpt": _histogram,
    "fileSizeHistogram": _histogram,
    "deletedRecordCountsHistogramOpt": _deleted_histogram,
    "allFiles": _all_files,
}

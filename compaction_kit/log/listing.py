"""Every file of `_delta_log`, explained."""

from collections.abc import Sequence, Set

import pyarrow as pa

from compaction_kit.log.names import Kind, LogFile
from compaction_kit.log.segment import Segment, complete_checkpoints

_TEXTS = {
    Kind.COMMIT: "the actions of version {version}",
    Kind.CHECKSUM: "sums of the state of version {version}, to check it by",
    Kind.CHECKPOINT: "the state of version {version}",
    Kind.CHECKPOINT_PART: "part {part} of {num_parts} of the state of version {version}",
    Kind.V2_CHECKPOINT: "the state of version {version}, whole or by its sidecars",
    Kind.SIDECAR: "file actions of a V2 checkpoint",
    Kind.COMPACTED: "the actions of versions {version} to {end_version}, reconciled",
    Kind.LAST_CHECKPOINT: "where the newest checkpoint was when it was written; a hint",
    Kind.OTHER: "nothing that the protocol names: a leftover, or another tool's",
}


def explain_files(files: Sequence[LogFile], segment: Segment, sidecars: Set[str]) -> pa.Table:
    """What each file holds, and whether the segment is read from it.

    Args:
        files: The listing of the log.
        segment: What the latest version is read from.
        sidecars: The sidecars of the segment's checkpoint, by name.

    Returns:
        See `TransactionLog.listing`.
    """
    needed = {file.name for file in segment.checkpoint + segment.commits} | sidecars
    complete = {file for checkpoint in complete_checkpoints(files).values() for file in checkpoint}
    return pa.table(
        {
            "name": pa.array([f.name for f in files], pa.string()),
            "kind": pa.array([f.kind.value for f in files], pa.string()),
            "version": pa.array([f.version for f in files], pa.int64()),
            "size_bytes": pa.array([f.size_bytes for f in files], pa.int64()),
            "modification_time": pa.array([f.modification_time for f in files], pa.timestamp("ms", "UTC")),
            "holds": pa.array([_holds(f, complete) for f in files], pa.string()),
            "needed": pa.array([f.name in needed for f in files], pa.bool_()),
        }
    )


def _holds(file: LogFile, complete: Set[LogFile]) -> str:
    text = _TEXTS[file.kind].format(
        version=file.version, end_version=file.end_version, part=file.part, num_parts=file.num_parts
    )
    if file.kind is Kind.CHECKPOINT_PART and file not in complete:
        return f"{text}; not read: a part is missing, or another checkpoint has that version"
    return text

"""What the latest version says of files: which it needs, which it has removed and when."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.history.needs import file_names, vector_paths
from compaction_kit.log.paths import places
from compaction_kit.log.snapshot import Snapshot


@dataclass(frozen=True)
class References:
    """The files that the latest version names, those of deletion vectors among them.

    Attributes:
        live: The paths of the live files.
        live_data: Those of them that are data files.
        removed: The tombstones: path, time (ms since 1970; 0 where the log doesn't say), is_data.
    """

    live: pa.Array
    live_data: pa.Array
    removed: pa.Table

    def young(self, cutoff: int) -> pa.Table:
        """The tombstones from a time on (ms since 1970)."""
        return self.removed.filter(pc.greater_equal(self.removed["time"], cutoff))


def read_references(snapshot: Snapshot, table: Path) -> References:
    """What a snapshot names.

    Args:
        snapshot: Of the latest version.
        table: The table's folder.
    """
    tombstones = snapshot.tombstones
    # A tombstone without a time counts as one of 1970 (RemoveFile.delTimestamp).
    times = pc.fill_null(tombstones["deletion_timestamp"], 0).combine_chunks()
    data = places(tombstones["path"], table)
    vectors = vector_paths(tombstones["deletion_vector_id"], table)
    removed = pa.concat_tables(
        pa.table({"path": paths, "time": times, "is_data": pa.repeat(is_data, len(times))})
        for paths, is_data in ((data, True), (vectors, False))
    )
    names = file_names(snapshot.live, table)
    return References(
        pa.concat_arrays(names.chunks or [pa.array([], pa.string())]),
        places(snapshot.live["path"], table),
        removed.filter(pc.is_valid(removed["path"])),
    )

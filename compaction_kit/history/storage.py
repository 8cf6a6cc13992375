"""How many bytes each version left: live, tombstoned, gone."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure

from compaction_kit import plots
from compaction_kit.folder import list_folder
from compaction_kit.history.needs import read_needs
from compaction_kit.history.readable import missing_paths
from compaction_kit.log import TransactionLog


@dataclass(frozen=True)
class Storage:
    """The bytes of a table's data files, version by version, as far as the log tells of them.

    Attributes:
        versions: One row a version: version, live_bytes (of the files that it has), tombstoned_bytes
            (of those that earlier versions had, and that are on disk now), gone_bytes (of those that
            earlier versions had, and that are not).
        orphaned_bytes: Of the files on disk that no version has.
    """

    versions: pa.Table
    orphaned_bytes: int

    def plot(self, versions: pa.Table) -> Figure:
        """Draw the bytes that each version left, and which versions can be read.

        Args:
            versions: What `Table.versions()` returns.
        """
        return plots.storage(self.versions, self.orphaned_bytes, versions)


def read_storage(table: Path, log: TransactionLog) -> Storage:
    """Read the log and look at the disk; hidden files are passed over, as VACUUM does.

    Args:
        table: The table's folder.
        log: Its log.
    """
    metadata = log.snapshot().metadata
    first, lifetimes = log.lifetimes()
    needs = read_needs(table, log)
    on_disk = list_folder(table, metadata.partition_columns)
    paths = lifetimes["path"].combine_chunks()
    gone = pc.is_in(paths, value_set=missing_paths(table, pa.chunked_array([paths]), on_disk["path"]))
    is_gone = gone.to_numpy(zero_copy_only=False)
    sizes = pc.fill_null(lifetimes["size_bytes"], 0).to_numpy()
    added = lifetimes["added"].to_numpy() - first.version
    removed = pc.fill_null(lifetimes["removed"], needs.latest + 1).to_numpy() - first.version
    length = len(needs.versions)
    live = _totals(added, sizes, length) - _totals(removed, sizes, length)
    # A file that came back, or got another vector, has been there since its first life.
    _, begins = np.unique(paths.dictionary_encode().indices.to_numpy(), return_index=True)
    seen = _totals(added[begins], sizes[begins], length)
    is_gone_file = is_gone[begins]
    seen_gone = _totals(added[begins][is_gone_file], sizes[begins][is_gone_file], length)
    live_gone = _totals(added[is_gone], sizes[is_gone], length) - _totals(
        removed[is_gone], sizes[is_gone], length
    )
    gone_bytes = seen_gone - live_gone
    orphans = on_disk.filter(pc.invert(pc.is_in(on_disk["path"], value_set=needs.files["path"])))
    columns = {"live_bytes": live, "tombstoned_bytes": seen - live - gone_bytes, "gone_bytes": gone_bytes}
    versions = pa.table({"version": needs.versions, **columns})
    return Storage(versions, pc.sum(orphans["size_bytes"]).as_py() or 0)


def _totals(versions: np.ndarray, sizes: np.ndarray, length: int) -> np.ndarray:
    """The bytes that came by each version."""
    steps = np.zeros(length + 1, dtype=np.int64)
    np.add.at(steps, versions, sizes)
    return np.cumsum(steps)[:-1]

"""The rows that a reader of an old manifest reads twice, misses, or reads although they are outdated."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Damage:
    """The numbers of rows that a reader of a manifest gets wrong; lower bounds if it mixes versions.

    Attributes:
        twice: Rows read from a file and again from the file that it was compacted to.
        missed: Live rows that are in no listed file.
        outdated: Rows of listed files that a commit with data changes removed: some of them were deleted or
            updated, the others count as missed too.
    """

    twice: int
    missed: int
    outdated: int

    def __bool__(self) -> bool:
        return bool(self.twice or self.missed or self.outdated)


def measure_damage(lives: pa.Table, rewriting: np.ndarray) -> Damage:
    """Compare the rows of listed files with those of live files.

    Files replaced by a commit without data changes have the same rows as their replacements, so only the
    sums over such a family of files are compared.

    Args:
        lives: One row per span of versions in which a file was live: partition (string), added (int64),
            removed (int64, the first version without it; null if it is live), num_rows (int64; ignored for
            files that are neither live nor listed), listed (bool).
        rewriting: The versions that changed no data.
    """
    added, num_rows, listed = (lives[name].to_numpy() for name in ("added", "num_rows", "listed"))
    removed = pc.fill_null(lives["removed"], -1).to_numpy()
    partitions = lives["partition"].combine_chunks().dictionary_encode().indices.to_numpy()
    families = _families(added, removed, partitions, rewriting)
    length = int(families.max(initial=-1)) + 1
    live = removed < 0

    def rows_in(files: np.ndarray) -> np.ndarray:
        return np.bincount(families[files], num_rows[files], minlength=length).astype(np.int64)

    deleted = ~live & ~np.isin(removed, rewriting)
    changed = np.bincount(families[deleted], minlength=length).astype(bool)
    surplus = np.where(changed, 0, rows_in(listed) - rows_in(live))
    return Damage(
        twice=int(surplus[surplus > 0].sum()),
        missed=int(-surplus[surplus < 0].sum() + rows_in(live & ~listed)[changed].sum()),
        outdated=int(rows_in(listed & ~live)[changed].sum()),
    )


def _families(
    added: np.ndarray, removed: np.ndarray, partitions: np.ndarray, rewriting: np.ndarray
) -> np.ndarray:
    """Number families: the files that a rewriting commit removed and added in a partition share a number."""
    rows = np.arange(len(added))
    is_output, is_input = np.isin(added, rewriting), np.isin(removed, rewriting)
    files = np.concatenate([rows[is_output], rows[is_input]])
    versions = np.concatenate([added[is_output], removed[is_input]])
    _, commits = np.unique(np.stack([versions, partitions[files]]), axis=1, return_inverse=True)
    commits = commits.reshape(-1)
    labels = rows
    while True:
        least = np.full(len(files), len(rows))
        np.minimum.at(least, commits, labels[files])
        joined = labels.copy()
        np.minimum.at(joined, files, least[commits])
        if (joined == labels).all():
            return np.unique(labels, return_inverse=True)[1]
        labels = joined

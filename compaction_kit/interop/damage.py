"""Which rows the reader of an old list of files reads twice, misses, or reads though they are outdated."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Damage:
    """Numbers of rows that the reader of a list gets wrong; at least so many, where a list mixes versions.

    Attributes:
        twice: Rows read from a file and again from the file that it was compacted to.
        missed: Live rows that are in no listed file.
        outdated: Rows of listed files that a commit which changed data has removed: some of them are
            deleted or updated, the others are among the missed.
    """

    twice: int
    missed: int
    outdated: int

    def __bool__(self) -> bool:
        return bool(self.twice or self.missed or self.outdated)


def measure_damage(lives: pa.Table, rewriting: np.ndarray) -> Damage:
    """Compare the rows of listed files with those of live files.

    Files that a commit without data changes has replaced have the same rows as the files that replaced
    them, so that only the sums of such a family of files are compared.

    Args:
        lives: One row for each time that a file of the partitions was live: partition (string), added (int64,
            the version), removed (int64, the first version without it; null if it is live), num_rows (int64;
            of files that are neither live nor listed it doesn't matter), listed (bool).
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
    """Number the files; those that a rewriting commit removed and added in a partition have one number."""
    rows = np.arange(len(added))
    born, gone = np.isin(added, rewriting), np.isin(removed, rewriting)
    files = np.concatenate([rows[born], rows[gone]])
    versions = np.concatenate([added[born], removed[gone]])
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

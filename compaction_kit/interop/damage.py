"""Which rows a reader through an old list of files reads twice, misses, or reads though they are gone."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Lives:
    """The times that data files were live, one a row of each array.

    Attributes:
        added: The version from which on.
        removed: The first version without it; -1 if it is live.
        partition: A number for its partition.
        rows: How many rows it has; of those that are neither live nor listed it doesn't matter.
        listed: Whether the list has it.
    """

    added: np.ndarray
    removed: np.ndarray
    partition: np.ndarray
    rows: np.ndarray
    listed: np.ndarray

    @property
    def live(self) -> np.ndarray:
        """Whether each is live."""
        return self.removed < 0


@dataclass(frozen=True)
class Damage:
    """Rows by what becomes of them for a reader of the list; at the least, where a list mixes versions.

    Attributes:
        twice: In a file and again in what it was compacted to.
        missed: Live ones that are in no listed file.
        outdated: In files that a commit that changed data has removed: some of their rows are
            deleted or updated, the others are among the missed.
    """

    twice: int
    missed: int
    outdated: int

    def __bool__(self) -> bool:
        return bool(self.twice or self.missed or self.outdated)


def measure_damage(lives: Lives, rewriting: np.ndarray) -> Damage:
    """Compare the rows of the listed files with those of the live ones.

    Files that a commit without data changes has replaced have the same rows as those that replaced
    them, so that only the sums of such a family of files are compared.

    Args:
        lives: Every file of the partitions in question.
        rewriting: The versions that changed no data.
    """
    families = _families(lives, rewriting)
    count = int(families.max(initial=-1)) + 1
    ended = ~lives.live & ~np.isin(lives.removed, rewriting)
    changed = np.bincount(families[ended], minlength=count).astype(bool)
    live, listed = (_sums(families, lives.rows, which, count) for which in (lives.live, lives.listed))
    surplus = np.where(changed, 0, listed - live)
    stale = _sums(families, lives.rows, lives.listed & ~lives.live, count)
    unlisted = _sums(families, lives.rows, lives.live & ~lives.listed, count)
    return Damage(
        twice=int(surplus[surplus > 0].sum()),
        missed=int(-surplus[surplus < 0].sum() + unlisted[changed].sum()),
        outdated=int(stale[changed].sum()),
    )


def _sums(families: np.ndarray, rows: np.ndarray, which: np.ndarray, count: int) -> np.ndarray:
    return np.bincount(families[which], rows[which], minlength=count).astype(np.int64)


def _families(lives: Lives, rewriting: np.ndarray) -> np.ndarray:
    """Number the files so that those have the same number that rewriting commits join.

    A rewriting commit joins what it removed and added in one partition.
    """
    rows = np.arange(len(lives.added))
    born, gone = np.isin(lives.added, rewriting), np.isin(lives.removed, rewriting)
    files = np.concatenate([rows[born], rows[gone]])
    versions = np.concatenate([lives.added[born], lives.removed[gone]])
    ties = np.stack([versions, lives.partition[files]])
    _, commits = np.unique(ties, axis=1, return_inverse=True)
    commits = commits.reshape(-1)
    labels = rows.copy()
    while True:
        least = np.full(len(files), len(rows))
        np.minimum.at(least, commits, labels[files])
        joined = labels.copy()
        np.minimum.at(joined, files, least[commits])
        if (joined == labels).all():
            return np.unique(labels, return_inverse=True)[1]
        labels = joined

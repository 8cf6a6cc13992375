"""What a reader of an old list of files gets wrong, against the rows themselves."""

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from compaction_kit.interop.damage import Damage, measure_damage

LIVES = pa.schema(
    [
        ("partition", pa.string()),
        ("added", pa.int64()),
        ("removed", pa.int64()),
        ("num_rows", pa.int64()),
        ("listed", pa.bool_()),
    ]
)


class History:
    """A table of one partition, with the rows of each file: files are appended, joined, deleted from."""

    def __init__(self) -> None:
        self.rows: list[set[int]] = []
        self.added: list[int] = []
        self.removed: list[int] = []
        self.rewriting: list[int] = []
        self.version = 0

    def live(self, version: int) -> set[int]:
        spans = enumerate(zip(self.added, self.removed, strict=True))
        return {file for file, (start, end) in spans if start <= version and (end < 0 or end > version)}

    def append(self, count: int) -> None:
        first = sum(map(len, self.rows))
        self._commit([], [set(range(first, first + count))])

    def join(self, files: list[int]) -> None:
        self.rewriting.append(self.version + 1)
        self._commit(files, [set().union(*(self.rows[file] for file in files))])

    def delete(self, file: int) -> None:
        """Delete one row of a file, which is rewritten without it."""
        self._commit([file], [set(sorted(self.rows[file])[1:])])

    def _commit(self, gone: list[int], new: list[set[int]]) -> None:
        self.version += 1
        for file in gone:
            self.removed[file] = self.version
        self.rows += new
        self.added += [self.version] * len(new)
        self.removed += [-1] * len(new)

    def damage(self, listed: set[int]) -> Damage:
        lives = {
            "partition": ["p=1"] * len(self.rows),
            "added": self.added,
            "removed": [None if end < 0 else end for end in self.removed],
            "num_rows": [len(rows) for rows in self.rows],
            "listed": [file in listed for file in range(len(self.rows))],
        }
        return measure_damage(pa.table(lives, LIVES), np.array(self.rewriting, dtype=np.int64))

    def read(self, files: set[int]) -> Counter[int]:
        return Counter(row for file in files for row in self.rows[file])


@st.composite
def histories(draw: st.DrawFn, deletes: bool) -> History:
    history = History()
    for step in draw(st.lists(st.sampled_from("ajd" if deletes else "aj"), max_size=12)):
        live = sorted(history.live(history.version))
        if step == "j" and len(live) > 1:
            chosen = draw(st.lists(st.sampled_from(live), min_size=2, unique=True))
            history.join(chosen)
        elif step == "d" and live:
            history.delete(draw(st.sampled_from(live)))
        else:
            history.append(draw(st.integers(1, 9)))
    return history


@given(histories(deletes=False), st.data())
def test_of_an_older_version_exactly_the_rows_appended_since_are_missed(
    history: History, data: st.DataObject
) -> None:
    version = data.draw(st.integers(0, history.version))
    missed = history.read(history.live(history.version)) - history.read(history.live(version))
    assert history.damage(history.live(version)) == Damage(0, missed.total(), 0)


@given(histories(deletes=False), st.data())
def test_of_two_versions_at_once_only_wrong_rows_are_counted(history: History, data: st.DataObject) -> None:
    first, second = (data.draw(st.integers(0, history.version)) for _ in range(2))
    listed = history.live(first) | history.live(second)
    rows, now = history.read(listed), history.read(history.live(history.version))
    damage = history.damage(listed)
    assert damage.outdated == 0
    assert damage.twice <= rows.total() - len(rows)
    assert damage.missed <= len(now - rows)
    assert damage.twice - damage.missed == rows.total() - now.total()


@given(histories(deletes=True), st.data())
def test_no_damage_means_the_same_rows_where_one_version_is_listed(
    history: History, data: st.DataObject
) -> None:
    version = data.draw(st.integers(0, history.version))
    same = history.read(history.live(version)) == history.read(history.live(history.version))
    assert bool(history.damage(history.live(version))) is not same


def test_a_file_and_what_it_was_joined_to_are_read_twice() -> None:
    history = History()
    history.append(3)
    history.append(4)
    history.join([0, 1])
    assert history.damage({0, 1, 2}) == Damage(7, 0, 0)
    assert history.damage({0, 2}) == Damage(3, 0, 0)
    assert history.damage({0}) == Damage(0, 4, 0)


def test_a_file_that_rows_were_deleted_from_is_outdated() -> None:
    history = History()
    history.append(3)
    history.delete(0)
    assert history.damage({0}) == Damage(0, 2, 3)

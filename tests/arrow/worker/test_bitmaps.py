"""Bitmaps hold the numbers that another reader finds in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from compaction_kit.arrow.worker.bitmaps import numbers_in

STARTS = st.sampled_from([0, 1, 65_530, 65_536, 200_000, (1 << 32) - 3, 1 << 33])
# Single numbers, runs, and every second number: as many as make arrays and bitsets.
PARTS = st.lists(
    st.tuples(STARTS, st.sampled_from([1, 5, 4_096, 4_097, 70_000]), st.sampled_from([1, 2])), max_size=6
)


@given(PARTS, st.booleans())
def test_all_sorts_of_bitmaps_are_read(parts: list[tuple[int, int, int]], has_runs: bool) -> None:
    bitmap = BitMap64()
    for start, count, step in parts:
        bitmap.update(range(start, start + count * step, step))
    if has_runs:
        bitmap.run_optimize()
    assert numbers_in(bitmap.serialize()).tolist() == list(bitmap)


def test_what_is_no_bitmap_is_an_error() -> None:
    with pytest.raises(ValueError, match="a bitmap begins with 12348"):
        numbers_in(
            BitMap64([1]).serialize().replace((12346).to_bytes(4, "little"), (12348).to_bytes(4, "little"))
        )

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_kit.plan.packing import batch_of_bins


def packed_by_size(sizes: list[int], batch_size: int) -> list[list[int]]:
    """Delta's binPackBySize, word for word."""
    batches: list[list[int]] = []
    current: list[int] = []
    total = 0
    for i in sorted(range(len(sizes)), key=lambda i: sizes[i]):
        if total >= batch_size or sizes[i] + total > batch_size:
            if current:
                batches.append(current)
            current, total = [i], sizes[i]
        else:
            current.append(i)
            total += sizes[i]
    return [*batches, current] if current else batches


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 120))
def test_bins_go_into_batches_as_in_delta(sizes: list[int], batch_size: int) -> None:
    batches = batch_of_bins(np.array(sizes, np.int64), batch_size)
    found = [np.flatnonzero(batches == number).tolist() for number in range(batches.max(initial=-1) + 1)]
    assert found == [sorted(batch) for batch in packed_by_size(sizes, batch_size)]


@pytest.mark.parametrize("sizes", [[], [5, 1]], ids=str)
def test_without_a_size_all_bins_are_one_batch(sizes: list[int]) -> None:
    assert batch_of_bins(np.array(sizes, np.int64), None).tolist() == [0] * len(sizes)

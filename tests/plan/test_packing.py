import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from compaction_kit.plan.packing import Packer, Packing, batch_of_bins

FILE = st.tuples(st.integers(0, 60), st.integers(0, 4), st.booleans())


def pack(sizes: list[int], groups: list[int], candidates: list[bool], max_file_size: int) -> Packing:
    """OPTIMIZE's order; files of one size as they come."""
    numbers = np.array(sizes, np.int64), np.array(groups, np.int64)
    return Packer(np.lexsort(numbers), *numbers).pack(np.array(candidates, bool), max_file_size)


def columns_of(files: list[tuple[int, int, bool]]) -> tuple[list[int], list[int], list[bool]]:
    return [file[0] for file in files], [file[1] for file in files], [file[2] for file in files]


def bins_of(packing: Packing) -> list[list[int]]:
    positions, bin_ids = packing.members
    return [positions[bin_ids == bin_id].tolist() for bin_id in range(packing.num_bins)]


def next_fit(
    sizes: list[int], groups: list[int], candidates: list[bool], max_file_size: int
) -> list[list[int]]:
    """The rule, word for word: by partition, smallest first; close when full; drop bins of one."""
    kept = []
    for group in sorted(set(groups)):
        members = [i for i in range(len(sizes)) if groups[i] == group and candidates[i]]
        current: list[int] = []
        for i in sorted(members, key=lambda i: (sizes[i], i)):
            if current and sum(sizes[j] for j in current) + sizes[i] > max_file_size:
                kept.append(current)
                current = []
            current.append(i)
        kept.append(current)
    return [bin_ for bin_ in kept if len(bin_) > 1]


@given(st.lists(FILE, max_size=40), st.integers(1, 150))
def test_packing_is_next_fit(files: list[tuple[int, int, bool]], max_file_size: int) -> None:
    sizes, groups, candidates = columns_of(files)
    packing = pack(sizes, groups, candidates, max_file_size)
    assert bins_of(packing) == next_fit(sizes, groups, candidates, max_file_size)


def test_sums_beyond_a_32_bit_integer_and_a_huge_maximum_do_not_overflow() -> None:
    sizes = [2**40] * 5
    assert bins_of(pack(sizes, [0] * 5, [True] * 5, 2**63 - 1)) == [[0, 1, 2, 3, 4]]
    assert bins_of(pack(sizes, [0] * 5, [True] * 5, 2**41)) == [[0, 1], [2, 3]]


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

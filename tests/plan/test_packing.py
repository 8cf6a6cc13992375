import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from compaction_kit.plan.packing import Packer

# A file's size, its partition, and whether it is to be packed.
File = tuple[int, int, bool]
FILES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 4), st.booleans()), max_size=40)


def bins_of(files: list[File], max_file_size: int) -> list[list[int]]:
    """Pack in OPTIMIZE's order; files of equal size stay in the given order."""
    sizes, groups = (np.array([file[i] for file in files], np.int64) for i in (0, 1))
    candidates = np.array([file[2] for file in files], bool)
    packing = Packer(np.lexsort((sizes, groups)), sizes, groups).pack(candidates, max_file_size)
    positions, bin_ids = packing.members
    return [positions[bin_ids == bin_id].tolist() for bin_id in range(packing.num_bins)]


def next_fit(files: list[File], max_file_size: int) -> list[list[int]]:
    """The rule, word for word: by partition, smallest first; close when full; drop bins of one."""
    kept = []
    for group in sorted({file[1] for file in files}):
        members = [i for i, file in enumerate(files) if file[1] == group and file[2]]
        current: list[int] = []
        for i in sorted(members, key=lambda i: (files[i][0], i)):
            if current and sum(files[j][0] for j in current) + files[i][0] > max_file_size:
                kept.append(current)
                current = []
            current.append(i)
        kept.append(current)
    return [bin_ for bin_ in kept if len(bin_) > 1]


@given(FILES, st.integers(1, 150))
def test_packing_is_next_fit(files: list[File], max_file_size: int) -> None:
    assert bins_of(files, max_file_size) == next_fit(files, max_file_size)


def test_sums_beyond_a_32_bit_integer_and_a_huge_maximum_do_not_overflow() -> None:
    files = [(2**40, 0, True)] * 5
    assert bins_of(files, 2**63 - 1) == [[0, 1, 2, 3, 4]]
    assert bins_of(files, 2**41) == [[0, 1], [2, 3]]

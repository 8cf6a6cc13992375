"""Plan a million files in ten thousand partitions, beside next-fit in plain Python.

Prints ratios measured side by side in one run; the seconds depend on the machine.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from compaction_kit.plan.packing import Packer
from compaction_kit.sizes import MIB

NUM_FILES = 1_000_000
NUM_PARTITIONS = 10_000
SEED = 0

T = TypeVar("T")


def main() -> None:
    rng = np.random.default_rng(SEED)
    sizes = rng.lognormal(14, 1.5, NUM_FILES).astype(np.int64)
    groups = rng.integers(0, NUM_PARTITIONS, NUM_FILES)
    first, packer = timed(lambda: Packer(sizes, groups, np.arange(NUM_FILES)))
    packed, packing = timed(lambda: packer.pack(sizes < 128 * MIB, 128 * MIB))
    again = min(timed(lambda: packer.pack(sizes < 64 * MIB, 64 * MIB))[0] for _ in range(5))
    plain, num_bins = timed(lambda: next_fit(sizes.tolist(), groups.tolist(), 128 * MIB))
    assert num_bins == packing.num_bins, (num_bins, packing.num_bins)
    print(f"{NUM_FILES:,} files in {NUM_PARTITIONS:,} partitions, {num_bins:,} bins of at most 128 MiB")
    once = first + packed
    print(f"first plan   {once:7.3f} s   {plain / once:6.1f} times as fast as plain Python")
    print(f"re-plan      {again:7.3f} s   {plain / again:6.1f} times as fast")
    print(f"plain Python {plain:7.3f} s")


def timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    value = work()
    return time.perf_counter() - start, value


def next_fit(sizes: list[int], groups: list[int], max_file_size: int) -> int:
    """The number of bins of two or more files, by the rule as one would first write it."""
    partitions = defaultdict(list)
    for size, group in zip(sizes, groups, strict=True):
        if size < max_file_size:
            partitions[group].append(size)
    num_bins = 0
    for members in partitions.values():
        count = total = 0
        for size in sorted(members):
            if total + size > max_file_size:
                num_bins += count > 1
                count = total = 0
            count += 1
            total += size
        num_bins += count > 1
    return num_bins


if __name__ == "__main__":
    main()

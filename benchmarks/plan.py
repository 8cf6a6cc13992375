"""Plan a million files in ten thousand partitions, and compare with next-fit in plain Python.

    python -m benchmarks.plan

Both have the table's files in memory: the kit as it read them from a log, plain Python as lists.
Prints ratios of times that are measured in one run; the seconds depend on the machine.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

import compaction_kit as ck
from benchmarks import timed
from compaction_kit.plan import BinPlan, Planner, Thresholds
from compaction_kit.text import MIB
from tests import handmade

NUM_FILES = 1_000_000
NUM_PARTITIONS = 10_000
REPEATS = 5
SEED = 0
# The most seconds for a first plan and for another one, and the required speed-up of the latter.
TARGETS = (0.5, 0.05, 50.0)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="plan-") as folder:
        files = ck.open_table(write_table(Path(folder))).files()
        columns = files.to_arrow()
    sizes, partitions = columns["size_bytes"].to_pylist(), columns["partition.p"].to_pylist()
    limits, other = Thresholds(128 * MIB, 128 * MIB), Thresholds(64 * MIB, 64 * MIB)
    first = best(lambda: bins_of(Planner(files), limits))
    planner = Planner(files)
    num_bins = bins_of(planner, limits)
    again = best(lambda: bins_of(planner, other))
    plain, expected = timed(lambda: next_fit(sizes, partitions, 128 * MIB))
    assert num_bins == expected, (num_bins, expected)
    print(f"{NUM_FILES:,} files in {NUM_PARTITIONS:,} partitions, {num_bins:,} bins of at most 128 MiB")
    print(f"first plan    {first:7.3f} s   {plain / first:6.1f} times as fast as plain Python")
    print(f"another plan  {again:7.3f} s   {plain / again:6.1f} times as fast")
    print(f"plain Python  {plain:7.3f} s")
    for name, seconds, target in (("first plan", first, TARGETS[0]), ("another plan", again, TARGETS[1])):
        if seconds > target:
            print(f"NOT REACHED: {name} takes {seconds:.3f} s, the target is {target} s")
    if plain / again < TARGETS[2]:
        print(f"NOT REACHED: another plan is {plain / again:.1f} times as fast, the target is {TARGETS[2]}")


def bins_of(planner: Planner, thresholds: Thresholds) -> int:
    return BinPlan.of(planner, thresholds).num_bins


def best(work: Callable[[], object]) -> float:
    return min(timed(work)[0] for _ in range(REPEATS))


def next_fit(sizes: list[int], partitions: list[str], max_file_size: int) -> int:
    """Return the number of bins of two or more files, by the simplest implementation of next-fit."""
    groups = defaultdict(list)
    for position, (size, partition) in enumerate(zip(sizes, partitions, strict=True)):
        if size < max_file_size:
            groups[partition].append((size, position))
    bins: list[list[int]] = []
    for members in groups.values():
        current: list[int] = []
        total = 0
        for size, position in sorted(members):
            if current and total + size > max_file_size:
                bins.append(current)
                current, total = [], 0
            current.append(position)
            total += size
        bins.append(current)
    return sum(len(members) > 1 for members in bins)


def write_table(folder: Path) -> Path:
    """Write a log of one commit; the data files don't exist."""
    rng = np.random.default_rng(SEED)
    partitions = rng.integers(0, NUM_PARTITIONS, NUM_FILES).astype(str).tolist()
    sizes = rng.lognormal(14, 1.5, NUM_FILES).astype(np.int64).tolist()
    adds = [
        handmade.add(f"p={p}/part-{k:07d}.parquet", size, {"p": p}, size // 30)
        for k, (p, size) in enumerate(zip(partitions, sizes, strict=True))
    ]
    return handmade.write_log(folder, [handmade.metadata({"id": "long", "p": "integer"}, ["p"]), *adds])


if __name__ == "__main__":
    main()

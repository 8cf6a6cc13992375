"""Plan a million files in ten thousand partitions, beside next-fit in plain Python.

    python -P benchmarks/plan.py

Both have the table's files in memory: the kit as it read them from a log, plain Python as lists.
Prints ratios measured side by side in one run; the seconds depend on the machine.
"""

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import compaction_kit as ck
from compaction_kit.compaction import CompactionPlan
from compaction_kit.plan import Planner, Thresholds
from compaction_kit.text import MIB

NUM_FILES = 1_000_000
NUM_PARTITIONS = 10_000
REPEATS = 5
SEED = 0
# Seconds for a first plan and for another one; and how many times as fast as plain Python that is.
TARGETS = (0.5, 0.05, 50.0)

T = TypeVar("T")


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
    return CompactionPlan.of(planner, thresholds).num_bins


def best(work: Callable[[], object]) -> float:
    return min(timed(work)[0] for _ in range(REPEATS))


def timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    value = work()
    return time.perf_counter() - start, value


def next_fit(sizes: list[int], partitions: list[str], max_file_size: int) -> int:
    """The number of bins of two or more files, by the rule as one would first write it."""
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


def write_table(folder: Path) -> str:
    """A log whose checkpoint has the adds; the data files don't exist."""
    rng = np.random.default_rng(SEED)
    log = folder / "_delta_log"
    log.mkdir()
    fields = [
        {"name": n, "type": t, "nullable": True, "metadata": {}}
        for n, t in (("id", "long"), ("p", "integer"))
    ]
    metadata = {
        "id": "11111111-1111-1111-1111-111111111111",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["p"],
        "configuration": {},
    }
    actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")
    text_map = pa.map_(pa.string(), pa.string())
    partitions = rng.integers(0, NUM_PARTITIONS, NUM_FILES).astype(str)
    sizes = rng.lognormal(14, 1.5, NUM_FILES).astype(np.int64)
    adds = pa.StructArray.from_arrays(
        [
            pa.array([f"p={p}/part-{k:07d}.parquet" for k, p in enumerate(partitions.tolist())]),
            pa.MapArray.from_arrays(
                np.arange(NUM_FILES + 1, dtype=np.int32), pa.repeat("p", NUM_FILES), pa.array(partitions)
            ).cast(text_map),
            pa.array(sizes),
            pa.repeat(1_700_000_000_000, NUM_FILES),
            pa.repeat(True, NUM_FILES),
            pa.array([f'{{"numRecords":{size // 30}}}' for size in sizes.tolist()]),
        ],
        ["path", "partitionValues", "size", "modificationTime", "dataChange", "stats"],
    )
    head = pa.Table.from_pylist(
        actions,
        pa.schema(
            [
                ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
                (
                    "metaData",
                    pa.struct(
                        [
                            ("id", pa.string()),
                            ("format", pa.struct([("provider", pa.string()), ("options", text_map)])),
                            ("schemaString", pa.string()),
                            ("partitionColumns", pa.list_(pa.string())),
                            ("configuration", text_map),
                        ]
                    ),
                ),
            ]
        ),
    )
    table = pa.concat_tables([head, pa.table({"add": adds})], promote_options="default")
    pq.write_table(table, log / f"{0:020d}.checkpoint.parquet")
    return str(folder)


if __name__ == "__main__":
    main()

"""Look back at a table of 100,000 files and 1,000 versions.

    python -P benchmarks/history.py

The log and the files (sparse: they have a size and take no room) are written here, without Spark.
Every tenth commit replaces the files of the nine before by a tenth as many; the table is 20 days
old, so that the older half has outlived the week that removed files are kept for. Each time is the
first look of a newly opened table. The seconds depend on the machine.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import compaction_kit as ck
from compaction_kit.text import MIB, format_size

NUM_VERSIONS = 1_000
FILES_A_VERSION = 100
DAYS = 20
DAY_MILLIS = 86_400_000
# Seconds that each may take.
TARGETS = {"versions": 5.0, "vacuum": 10.0}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="history-") as folder:
        table = write_table(Path(folder))
        for name, call in LOOKS.items():
            seconds, told = timed(call, ck.open_table(table))
            print(f"{name:<10}{seconds:7.2f} s   {told}")
            if seconds > TARGETS.get(name, seconds):
                print(f"NOT REACHED: {name} takes {seconds:.2f} s, the target is {TARGETS[name]} s")


def versions(table: ck.Table) -> str:
    readable = table.versions()["readable"].to_pylist()
    return ", ".join(f"{readable.count(status):,} {status}" for status in sorted(set(readable)))


def history(table: ck.Table) -> str:
    return f"{table.history().num_rows:,} commits"


def diff(table: ck.Table) -> str:
    found = table.diff(0, NUM_VERSIONS - 1)
    return f"{found.num_files_added:,} files added, {found.num_files_removed:,} removed"


def vacuum(table: ck.Table) -> str:
    plan = table.plan_vacuum(keep_versions=[NUM_VERSIONS // 2])
    return f"{plan.num_files:,} files, {format_size(plan.size_bytes)}"


# What is timed, by its name: each looks at a newly opened table and tells what it saw.
LOOKS: dict[str, Callable[[ck.Table], str]] = {
    "versions": versions,
    "history": history,
    "diff": diff,
    "vacuum": vacuum,
}


def timed(call: Callable[[ck.Table], str], table: ck.Table) -> tuple[float, str]:
    start = time.perf_counter()
    told = call(table)
    return time.perf_counter() - start, told


def write_table(folder: Path) -> Path:
    """The table; in each partition of ten, small files and what they were compacted into."""
    start = int(time.time() * 1000) - DAYS * DAY_MILLIS
    for partition in range(10):
        (folder / f"p={partition}").mkdir()
    (folder / "_delta_log").mkdir()
    replaced: list[dict[str, object]] = []
    for version in range(NUM_VERSIONS):
        millis = start + version * DAYS * DAY_MILLIS // NUM_VERSIONS
        compacts = version % 10 == 9
        adds = [add(version, number, compacts, millis) for number in range(FILES_A_VERSION)]
        actions: list[dict[str, object]] = [{"commitInfo": commit_info(version, compacts, millis)}]
        actions += HEAD if version == 0 else []
        actions += [remove(one, millis) for one in replaced] if compacts else []
        actions += [{"add": one} for one in adds]
        replaced = [] if compacts else replaced + adds
        log = folder / "_delta_log" / f"{version:020d}.json"
        log.write_text("".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions))
        set_time(log, millis)
        for one in adds:
            write_file(folder / str(one["path"]), int(str(one["size"])), millis)
    return folder


def commit_info(version: int, compacts: bool, millis: int) -> dict[str, object]:
    name, parameters = ("OPTIMIZE", {"predicate": "[]"}) if compacts else ("WRITE", {"mode": "Append"})
    info = {"timestamp": millis, "operation": name, "operationParameters": parameters}
    return info | {"readVersion": version - 1, "isBlindAppend": not compacts, "operationMetrics": {}}


def add(version: int, number: int, compacts: bool, millis: int) -> dict[str, object]:
    stats = {"numRecords": 1_000, "minValues": {"id": version}, "maxValues": {"id": version}}
    stats["nullCount"] = {"id": 0}
    return {
        "path": f"p={number % 10}/part-{version:05d}-{number:05d}-5ad81a4e.snappy.parquet",
        "partitionValues": {"p": str(number % 10)},
        "size": (9 if compacts else 1) * MIB + number,
        "modificationTime": millis,
        "dataChange": not compacts,
        "stats": json.dumps(stats),
    }


def remove(one: dict[str, object], millis: int) -> dict[str, object]:
    kept = {name: one[name] for name in ("path", "partitionValues", "size", "stats")}
    return {"remove": kept | {"deletionTimestamp": millis, "dataChange": False, "extendedFileMetadata": True}}


def write_file(path: Path, size: int, millis: int) -> None:
    path.touch()
    os.truncate(path, size)
    set_time(path, millis)


def set_time(path: Path, millis: int) -> None:
    os.utime(path, (millis / 1000, millis / 1000))


FIELDS = [
    {"name": name, "type": kind, "nullable": True, "metadata": {}}
    for name, kind in (("id", "long"), ("p", "string"))
]
HEAD: list[dict[str, object]] = [
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {
        "metaData": {
            "id": "00000000-0000-0000-0000-000000000007",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": FIELDS}),
            "partitionColumns": ["p"],
            "configuration": {},
            "createdTime": 1_700_000_000_000,
        }
    },
]

if __name__ == "__main__":
    main()

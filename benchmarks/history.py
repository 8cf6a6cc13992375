"""Measure calls on the history of a table with 100,000 files and 1,000 versions.

    python -m benchmarks.history

The log and the files (sparse files, which take no disk space) are written without Spark. Every tenth
commit replaces the 900 files of the nine commits before it with 100 files. The table is 20 days old,
so that most of the removed files are past the retention of one week. Each time is that of the first
call on a newly opened table. The seconds depend on the machine.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import compaction_kit as ck
from benchmarks import timed
from compaction_kit.text import MIB, format_size
from tests import handmade

NUM_VERSIONS = 1_000
FILES_A_VERSION = 100
DAYS = 20
DAY_MILLIS = 86_400_000
# The most seconds that each call may take.
TARGETS = {"versions": 5.0, "vacuum": 10.0}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="history-") as folder:
        table = write_table(Path(folder))
        for name, call in LOOKS.items():
            seconds, told = timed(partial(call, ck.open_table(table)))
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


# The timed calls by name: each takes a newly opened table and describes the result.
LOOKS: dict[str, Callable[[ck.Table], str]] = {
    "versions": versions,
    "history": history,
    "diff": diff,
    "vacuum": vacuum,
}


def write_table(folder: Path) -> Path:
    """Write the table: in each of ten partitions, small files and the files that replaced them."""
    start = int(time.time() * 1000) - DAYS * DAY_MILLIS
    for partition in range(10):
        (folder / f"p={partition}").mkdir()
    replaced: list[handmade.Action] = []
    for version in range(NUM_VERSIONS):
        millis = start + version * DAYS * DAY_MILLIS // NUM_VERSIONS
        compacts = version % 10 == 9
        adds = [add(version, number, compacts, millis) for number in range(FILES_A_VERSION)]
        actions = [{"commitInfo": commit_info(version, compacts, millis)}]
        if version == 0:
            actions += [handmade.protocol(), handmade.metadata({"id": "long", "p": "string"}, ["p"])]
        actions += [remove(one["add"], millis) for one in replaced] if compacts else []
        replaced = [] if compacts else replaced + adds
        set_time(handmade.write_commit(folder, version, actions + adds), millis)
        for one in adds:
            path = folder / one["add"]["path"]
            path.touch()
            os.truncate(path, one["add"]["size"])
            set_time(path, millis)
    return folder


def commit_info(version: int, compacts: bool, millis: int) -> handmade.Action:
    name, parameters = ("OPTIMIZE", {"predicate": "[]"}) if compacts else ("WRITE", {"mode": "Append"})
    info = {"timestamp": millis, "operation": name, "operationParameters": parameters}
    return info | {"readVersion": version - 1, "isBlindAppend": not compacts, "operationMetrics": {}}


def add(version: int, number: int, compacts: bool, millis: int) -> handmade.Action:
    path = f"p={number % 10}/part-{version:05d}-{number:05d}-5ad81a4e.snappy.parquet"
    action = handmade.add(path, (9 if compacts else 1) * MIB + number, {"p": str(number % 10)})
    bounds = {"id": version}
    stats = {"numRecords": 1_000, "minValues": bounds, "maxValues": bounds, "nullCount": {"id": 0}}
    fields = {"modificationTime": millis, "dataChange": not compacts, "stats": json.dumps(stats)}
    return {"add": action["add"] | fields}


def remove(one: handmade.Action, millis: int) -> handmade.Action:
    kept = {name: one[name] for name in ("path", "partitionValues", "size", "stats")}
    return {"remove": kept | {"deletionTimestamp": millis, "dataChange": False, "extendedFileMetadata": True}}


def set_time(path: Path, millis: int) -> None:
    os.utime(path, (millis / 1000, millis / 1000))


if __name__ == "__main__":
    main()

"""Forecasts, held against arithmetic, against plans, and against what a feed really did."""

import os
import time
from collections import Counter, defaultdict
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError, UnsupportedTableError
from compaction_kit.forecast import Forecast
from tests import handmade
from tests.ageing import age
from tests.chance import examples
from tests.folders import data_files

DAY = 86_400
TODAY = date(2026, 3, 1)
# A file: how many days ago it came, its partition ("" for the date of that day), and bytes.
File = tuple[int, str, int]
FEEDS = st.lists(
    st.tuples(st.integers(0, 16), st.sampled_from(["", "k", "l"]), st.integers(1, 60)), max_size=40
)


def at(folder: Path, version: int, days_ago: float, *actions: handmade.Action) -> None:
    moment = time.time() - days_ago * DAY
    os.utime(handmade.write_commit(folder, version, actions), (moment, moment))


def partition(day: int, name: str, later: int = 0) -> str:
    return name or f"{TODAY + timedelta(days=later - day)} 00:00"


def add(path: str, size: int, part: str, has_rows: bool = True) -> handmade.Action:
    return handmade.add(path, size, {"p": part}, 1 + size // 7 if has_rows else None)


def write_feed(folder: Path, length: int, files: list[File], has_rows: bool = True) -> Path:
    """A table of `length` days and a half, with a commit on each day, a rewrite, and a delete."""
    first = [add(f"first-{i}", 7, "k", has_rows) for i in range(3)]
    metadata = handmade.metadata({"id": "long", "p": "string"}, ["p"])
    at(folder, 0, length + 0.5, handmade.protocol(), metadata, *first)
    rewrite = [handmade.remove("first-0"), add("again", 7, "k", has_rows)]
    for action in rewrite:
        next(iter(action.values()))["dataChange"] = False
    at(folder, 1, length - 0.4, *rewrite)
    at(folder, 2, length - 0.45, handmade.remove("first-1"))
    by_day = defaultdict(list)
    for number, (day, name, size) in enumerate(files):
        by_day[day].append(add(f"f{number}", size, partition(day, name), has_rows))
    for version, day in enumerate(sorted(by_day, reverse=True), 3):
        at(folder, version, day + 0.5, *by_day[day])
    return folder


def to_come(length: int, window: int, files: list[File], days: int) -> list[list[tuple[str, int]]]:
    """Partition and bytes of the files live today, and of those that come on each day."""
    came = [[("k", 7)] * 2 + [(partition(day, name), size) for day, name, size in files]]
    for day in range(1, days + 1):
        shift = -(-day // window) * window
        came.append([(partition(ago, name, shift), size) for ago, name, size in files if ago == shift - day])
    return came


def per_day(forecast: Forecast, schedule: str, *names: str) -> list[tuple[int, ...]]:
    rows = forecast.days.to_pylist()
    return [tuple(row[name] for name in names) for row in rows if row["schedule"] == schedule]


@examples(by_day=40)
@given(st.integers(1, 17), FEEDS, st.booleans(), st.integers(1, 200), st.integers(1, 80))
def test_random_feeds(
    tmp_path_factory: pytest.TempPathFactory,
    length: int,
    files: list[File],
    has_rows: bool,
    cap: int,
    bound: int,
) -> None:
    files = [(day % length, name, size) for day, name, size in files]
    table = open_table(write_feed(tmp_path_factory.mktemp("feed"), length, files, has_rows))
    forecast = table.forecast(17, bound, max_file_size=cap)
    window = length if length <= 7 else length // 7 * 7
    came = to_come(length, window, files, 17)
    num_days = len({day for day, *_ in files if day < window})
    # The delete is the only other commit that changed data.
    expected = window, num_days, int(window == length)
    assert (forecast.window_days, forecast.num_commits, forecast.num_other_commits) == expected

    # If nothing is done, what came comes again, whatever else the log has.
    counts, sizes = np.cumsum([*map(len, came)]), np.cumsum([sum(size for _, size in one) for one in came])
    never = per_day(forecast, "never", "files_before", "num_files", "live_bytes", "stored_bytes")
    assert never == [(n, n, size, size) for n, size in zip(counts.tolist(), sizes.tolist(), strict=True)]

    # The first compaction is the plan.
    plan = table.plan_compaction(max_file_size=cap)
    after = per_day(forecast, "every day", "num_files", "live_bytes")[0]
    assert after == (plan.num_files_after, plan.sizes_after.sum())

    # Each schedule leaves as many files as the rule allows, and opens what has come since on top of them.
    totals = Counter[str]()
    for part, size in (file for one in came for file in one):
        totals[part] += size
    # Two bins of a partition, one after the other, hold more than a bin may.
    allowed = sum(2 * total / cap + 1 for total in totals.values())
    for row in forecast.schedules.to_pylist()[1:]:
        since, parts, every = 0, set[str](), row["every_days"]
        days = per_day(forecast, row["schedule"], "files_before", "num_files", "live_bytes", "stored_bytes")
        for day, ((before, left, live, stored), one) in enumerate(zip(days, came, strict=True)):
            since, parts = since + len(one), parts | {part for part, _ in one}
            compacts = day < 17 and day % every == 0
            assert len(parts) <= left <= before <= (allowed + since if day else len(came[0]))
            if compacts:
                assert len(parts) <= left <= allowed
                since = 0
            else:
                assert left == before
            assert live <= sizes[day]
            assert live <= stored
        assert row["most_files"] == max(before for before, *_ in days[1:])

    # The least often compaction is within the bound, and nothing less often is.
    most = {row["every_days"]: row["most_files"] for row in forecast.schedules.to_pylist()}
    if forecast.every_days is None:
        assert most[None] <= bound or min(most.values()) > bound
    else:
        assert most[forecast.every_days] <= bound < most[None]
        assert all(files > bound for every, files in most.items() if (every or 99) > forecast.every_days)

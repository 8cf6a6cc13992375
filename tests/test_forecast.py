"""Compare forecasts with arithmetic, with plans, and with what a feed really did."""

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

from compaction_kit import errors, open_table
from compaction_kit.cost import predict_cost
from compaction_kit.forecast import Forecast
from tests import handmade
from tests.ageing import age
from tests.chance import examples, nightly
from tests.folders import data_files
from tests.refusals import refused

DAY = 86_400
TODAY = date(2026, 3, 1)
# A file: how many days ago it came, its partition ("" for that day's date), and its bytes.
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
    """Write a table of `length` days and a half: a commit for each day with files, a rewrite, a delete."""
    first = [add(f"first-{i}", 7, "k", has_rows) for i in range(3)]
    metadata = handmade.metadata({"id": "long", "p": "string"}, ["p"])
    at(folder, 0, length + 0.5, handmade.protocol(), metadata, *first)
    rewrite = handmade.remove("first-0"), add("again", 7, "k", has_rows)
    at(folder, 1, length - 0.4, *map(handmade.unchanged, rewrite))
    at(folder, 2, length - 0.45, handmade.remove("first-1"))
    by_day = defaultdict(list)
    for number, (day, name, size) in enumerate(files):
        by_day[day].append(add(f"f{number}", size, partition(day, name), has_rows))
    for version, day in enumerate(sorted(by_day, reverse=True), 3):
        at(folder, version, day + 0.5, *by_day[day])
    return folder


def to_come(length: int, window: int, files: list[File], days: int) -> list[list[tuple[str, int]]]:
    """Return partition and bytes of today's live files, and of the files that come on each later day."""
    came = [[("k", 7)] * 2 + [(partition(day, name), size) for day, name, size in files]]
    for day in range(1, days + 1):
        shift = -(-day // window) * window
        came.append([(partition(ago, name, shift), size) for ago, name, size in files if ago == shift - day])
    return came


def per_day(forecast: Forecast, schedule: str, *names: str) -> list[tuple[int, ...]]:
    rows = forecast.days.to_pylist()
    return [tuple(row[name] for name in names) for row in rows if row["schedule"] == schedule]


@examples(by_day=15)
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

    # Without compaction, the arrivals of the past repeat, whatever else the log has.
    counts, sizes = np.cumsum([*map(len, came)]), np.cumsum([sum(size for _, size in one) for one in came])
    never = per_day(forecast, "never", "files_before", "num_files", "live_bytes", "stored_bytes")
    assert never == [(n, n, size, size) for n, size in zip(counts.tolist(), sizes.tolist(), strict=True)]

    # The forecast's first compaction is the same as the plan.
    plan = table.plan_compaction(max_file_size=cap)
    after = per_day(forecast, "every day", "num_files", "live_bytes")[0]
    assert after == (plan.num_files_after, plan.sizes_after.sum())

    # No schedule leaves more files than the rule allows; files that came since are opened in addition.
    totals = Counter[str]()
    for part, size in (file for one in came for file in one):
        totals[part] += size
    # Two consecutive bins of a partition together hold more than one bin may.
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

    # The chosen schedule is within the bound, and no less frequent schedule is.
    most = {row["every_days"]: row["most_files"] for row in forecast.schedules.to_pylist()}
    if forecast.every_days is None:
        assert most[None] <= bound or min(most.values()) > bound
    else:
        assert most[forecast.every_days] <= bound < most[None]
        assert all(files > bound for every, files in most.items() if (every or 99) > forecast.every_days)


def test_a_commit_that_replaces_a_vector_has_no_arrivals(tmp_path: Path) -> None:
    one, two = (handmade.inline_vector(rows) for rows in ([1], [1, 2]))
    protocol = handmade.protocol(features=["deletionVectors"])
    at(tmp_path, 0, 3.5, protocol, handmade.metadata(), handmade.add("a", 9))
    at(tmp_path, 1, 2.5, handmade.remove("a"), handmade.add("a", 9, vector=one))
    merged = handmade.remove("a", vector=one), handmade.add("a", 9, vector=two)
    at(tmp_path, 2, 1.5, *merged, handmade.add("b", 5))
    at(tmp_path, 3, 0.5, handmade.remove("b"), handmade.add("c", 6))
    forecast = open_table(tmp_path).forecast(4, 3)
    assert forecast.arrivals.to_pylist() == [{"days_ago": 1, "num_files": 1, "size_bytes": 5}]
    assert (forecast.num_commits, forecast.num_other_commits) == (1, 2)
    assert per_day(forecast, "never", "num_files") == [(2,), (2,), (3,), (3,), (3,)]
    assert forecast.finding.endswith("3 in 4 days if nothing is done, within max_files=3")
    assert "without 2 commits" in forecast.explain()


def test_the_first_files_of_a_table_of_today_are_no_arrivals(tmp_path: Path) -> None:
    at(tmp_path, 0, 0.5, handmade.protocol(), handmade.metadata(), *map(handmade.add, "abc"))
    assert open_table(tmp_path).forecast(3).arrivals.num_rows == 0
    at(tmp_path, 1, 0.3, handmade.add("d", 4))
    forecast = open_table(tmp_path).forecast(3)
    (row,) = forecast.arrivals.to_pylist()
    assert row == {"days_ago": 0, "num_files": 1, "size_bytes": 4}
    assert forecast.explain().endswith("the log's last day: 1 file (4 B) by 1 commit.")


def test_bounds_and_costs_of_a_feed_are_in_the_sentences(tmp_path: Path) -> None:
    table = open_table(write_feed(tmp_path, 7, [(day, "k", 100) for day in range(7)] * 10))
    forecast = table.forecast(30)
    # 72 files of one partition become 1 file: the bound is 100, and 9 days bring 90 files.
    assert (forecast.max_files, forecast.every_days) == (100, 9)
    assert "opens 72 files now, 372 in 30 days if nothing is done; " in forecast.finding
    assert forecast.finding.endswith("; compacted every 9 days, 91 at most")
    rows = {row["every_days"]: row for row in forecast.schedules.to_pylist()}
    assert (rows[9]["num_runs"], rows[9]["files_removed"], rows[9]["files_added"]) == (4, 72 + 3 * 91, 4)
    files, size, added, written = (number // 4 for number in [*rows[9].values()][3:7])
    each = predict_cost(files, size, added, written, remote=False).total()
    assert (rows[9]["seconds_from"], rows[9]["seconds_to"]) == tuple(4 * seconds for seconds in each)
    assert rows[1]["seconds_to"] > rows[9]["seconds_to"] > rows[9]["seconds_from"] > 0
    assert rows[None]["seconds_to"] == 0
    assert forecast.facts()["never"].endswith("; nothing rewritten")
    assert [*rows] == [None, 1, 2, 3, 7, 9, 14, 30]
    assert rows[1]["mean_files"] == 6
    assert " rewritten in 4 runs, about " in forecast.explain()
    above = table.forecast(30, 5)
    assert above.finding.endswith("; compacted every day, up to 11, above max_files=5")
    assert above.every_days is None


def test_dead_files_wait_for_the_vacuum_after_their_tombstones_and_they_are_old(tmp_path: Path) -> None:
    at(tmp_path, 0, 20, handmade.protocol(), handmade.metadata(), *map(handmade.add, "abc"))
    now = time.time()
    at(tmp_path, 1, 10, *(handmade.remove(name, int((now - 10 * DAY) * 1000)) for name in "ab"))
    for name, size, days in (("a", 5, 8), ("b", 9, 0.5)):
        (tmp_path / name).write_text("x" * size)
        os.utime(tmp_path / name, (now, now - days * DAY))
    forecast = open_table(tmp_path).forecast(9, vacuum_days=1)
    dead = [stored - live for live, stored in per_day(forecast, "every day", "live_bytes", "stored_bytes")]
    assert dead == [9] * 7 + [0] * 3
    assert forecast.schedules["most_stored_bytes"].to_pylist()[:2] == [1_014] * 2


def test_timestamps_in_the_year_9999_are_forecast(tmp_path: Path) -> None:
    """Such a time often means "no end"; the day after it has a year of five digits."""
    metadata = handmade.metadata({"id": "long", "p": "timestamp"}, ["p"])
    at(tmp_path, 0, 2.5, handmade.protocol(), metadata, add("a", 1, "9999-12-31 23:59:59.999999"))
    at(tmp_path, 1, 1.5, add("b", 1, "9999-12-31 23:59:59.999999"))
    forecast = open_table(tmp_path).forecast(4)
    assert forecast.schedules["files_removed"].to_pylist()[1] == 6


def test_what_cannot_be_forecast_is_refused(tmp_path: Path) -> None:
    columns = [handmade.metadata({"id": "long"}), *handmade.clustered_by("id"), handmade.add("a")]
    clustered = open_table(handmade.write_log(tmp_path / "clustered", columns))
    refused(clustered.forecast, errors.UnsupportedTableError, "clustered by id")
    table = open_table(handmade.write_log(tmp_path / "table", [handmade.add("a")]))
    for name, number in {"days": 0, "max_files": 0, "vacuum_days": -1}.items():
        refused(table.forecast, errors.InvalidArgumentError, f"{name}={number}", **{name: number})


# Strings that all writers store in dictionaries.
WORDS = np.array([f"{number:x}" * 3 for number in np.random.default_rng(0).integers(1 << 40, 1 << 48, 300)])
# `age` doesn't change the times in checkpoints, so there must be none.
CONFIGURATION = {"delta.deletedFileRetentionDuration": "interval 2 days", "delta.checkpointInterval": "1000"}


def append(folder: Path, day: int, rng: np.random.Generator) -> None:
    """Write the commits of a day, one or two, each with a file in each of two partitions."""
    for _ in range(1 + day % 2):
        rows = {name: WORDS[rng.integers(0, len(WORDS), 1_800)] for name in ("first", "second")}
        data = pa.table(rows | {"part": ["a"] * 1_200 + ["b"] * 600})
        write_deltalake(folder, data, mode="append", partition_by=["part"], configuration=CONFIGURATION)


# Small bins, of which some are full, and bins that hold a whole partition each.
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("strategy", "every", "size"),
    [("arrow", 3, "78 KiB"), *nightly(("arrow", 2, "1 GiB"), ("optimize", 1, "78 KiB"))],
)
def test_a_feed_does_what_was_forecast(tmp_path: Path, strategy: str, every: int, size: str) -> None:
    """Forecast a week from a week, then play it: appends, compactions, and a vacuum every 3 days."""
    folder, rng = tmp_path / "feed", np.random.default_rng(0)
    append(folder, 0, rng)
    for day in range(1, 8):
        age(folder, 1)
        append(folder, day, rng)
    age(folder, 0.01)
    forecast = open_table(folder).forecast(7, vacuum_days=3, max_file_size=size)
    assert (forecast.window_days, forecast.num_commits, forecast.num_other_commits) == (7, 11, 0)
    found = []
    for day in range(8):
        if day:
            age(folder, 1)
            append(folder, day, rng)
        table = open_table(folder)
        before = table.files().num_files
        if day < 7 and day % every == 0:
            table.plan_compaction(max_file_size=size).run(strategy=strategy, verify=False)
        if day < 7 and day % 3 == 0:
            DeltaTable(folder).vacuum(dry_run=False)
        files = table.files()
        on_disk = sum(path.stat().st_size for path in data_files(folder))
        found.append((before, files.num_files, files.size_bytes, on_disk))
    schedule = "every day" if every == 1 else f"every {every} days"
    expected = per_day(forecast, schedule, "files_before", "num_files", "live_bytes", "stored_bytes")
    assert [row[:2] for row in expected] == [row[:2] for row in found]
    # Sizes of new files are predicted by rewriting a few, and arrivals differ a little in bytes.
    np.testing.assert_allclose([row[2:] for row in expected], [row[2:] for row in found], rtol=0.05)

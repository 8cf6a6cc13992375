import os
import random
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.history.readable import read_files_by_version
from compaction_kit.retention import GUARD
from compaction_kit.text import MIB
from compaction_kit.times import session_zone
from tests import checkpoints, deltas_view, handmade
from tests.ageing import age_file
from tests.conftest import CopyOf, SetConf
from tests.handmade import add, remove, unchanged, write_log
from tests.refusals import refused
from tests.releases import since_delta
from tests.vacuum.conftest import drop_file


def column(table: Path, name: str) -> list[Any]:
    return open_table(table).versions()[name].to_pylist()


def written(table: Path, *commits: list[handmade.Action]) -> Path:
    """Write a log, and a file on disk for each of its add actions."""
    write_log(table, *commits)
    for action in (action for commit in commits for action in commit if "add" in action):
        (table / action["add"]["path"]).write_text("x")
    return table


def test_what_a_version_needs_is_looked_for_where_it_is(tmp_path: Path) -> None:
    table = tmp_path / "table"
    # "u": the last 20 characters are a UUID that names a file; it holds two vectors, at two offsets.
    first, second = (handmade.vector("ab^-aqEH.-t@S}K{vb[*k^", storage="u") | {"offset": n} for n in (1, 43))
    adds = [add(f"file://{tmp_path}/elsewhere"), add(".hidden", vector=first)]
    write_log(table, [*adds, add("_folder/a%20b", vector=second), add("s3a://elsewhere/not-looked-for")])
    vector = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    missing = read_files_by_version(open_table(table).handle).missing_of(0)
    assert missing == sorted([f"{tmp_path}/elsewhere", ".hidden", "_folder/a b", vector])
    assert column(table, "num_missing") == [4]
    for path in missing:
        drop_file(table, path)
    assert column(table, "readable") == ["yes"]


def test_versions_before_a_checkpoint_are_log_gone_and_it_too_without_its_commit(changed: Path) -> None:
    deltalake.DeltaTable(str(changed)).create_checkpoint()
    handmade.remove_commits(changed, 0, 1)
    assert column(changed, "version") == [2, 3, 4]
    assert column(changed, "readable") == ["log gone", "log gone", "yes"]
    assert column(changed, "records_change") == [None] * 3
    assert open_table(changed).history()["num_files"].to_pylist() == [None, None, 21]
    handmade.remove_commits(changed, 2, 3, 4)
    assert column(changed, "readable") == ["log gone"]
    assert column(changed, "timestamp") == column(changed, "operation") == [None]
    assert open_table(changed).history().num_rows == 0


@pytest.fixture(scope="module")
def gapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eleven versions, one file each, b removed in version 6; checkpoints at 2, 7 and 10."""
    folder = tmp_path_factory.mktemp("gapped")
    commits = [[handmade.write_data(folder, name, pa.table({"id": [1]}))] for name in "abcdefghijk"]
    commits[0] += [handmade.protocol(), handmade.metadata()]
    commits[6] += [remove("b")]
    write_log(folder, *commits)
    for version in (2, 7, 10):
        checkpoints.write_classic(folder, version, checkpoints.replay(commits[: version + 1]))
    return folder


def test_a_checkpoint_from_before_the_commits_is_compared_by_rows(gapped: Path, copy_of: CopyOf) -> None:
    table = copy_of(gapped)
    handmade.remove_commits(table, *range(7))
    diff = open_table(table).diff(2, 10)
    assert (diff.same_content_by, diff.difference) == (None, "7 rows more")


def test_files_removed_before_the_log_begins_are_tombstoned(gapped: Path, copy_of: CopyOf) -> None:
    table = copy_of(gapped)
    handmade.remove_commits(table, *range(8))
    (table / "_delta_log" / f"{2:020}.checkpoint.parquet").unlink()
    storage = open_table(table).storage()
    removed = (table / "b").stat().st_size
    assert (storage.orphaned_bytes, storage.versions["tombstoned_bytes"].to_pylist()) == (0, [removed] * 4)


def test_versions_before_a_lost_commit_are_gone(gapped: Path, copy_of: CopyOf) -> None:
    table = copy_of(gapped)
    handmade.remove_commits(table, 5)
    assert column(table, "version") == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert column(table, "readable") == ["log gone"] * 6 + ["yes"] * 4
    opened = open_table(table)
    refused(
        partial(opened.plan_restore, 4), InvalidArgumentError, "version=4 can't be restored: the log lacks"
    )
    keep = partial(opened.plan_vacuum, keep_versions=[4])
    refused(keep, InvalidArgumentError, "keep_versions=4 ", "the log lacks commits")
    assert opened.history()["num_files"].to_pylist() == [None] * 6 + [7, 8, 9, 10]


@since_delta("4.1")
def test_the_guard_blocks_all_but_the_latest(tmp_path: Path, confs: SetConf) -> None:
    table = written(tmp_path, [add("a")], [add("b")], [add("c")])
    for version, days in ((0, 8), (1, 6)):
        age_file(handmade.commit_path(table, version), days)
    assert column(table, "readable") == ["blocked", "yes", "yes"]
    # A version that can't be read without the guard either is reported as missing files, not as blocked.
    lost = written(tmp_path / "lost", [add("a")], [handmade.remove("a"), add("b")])
    age_file(handmade.commit_path(lost, 0), 8)
    assert column(lost, "readable") == ["blocked", "yes"]
    (lost / "a").unlink()
    assert column(lost, "readable") == ["missing files", "yes"]
    # b and c are live, so only the guard limits how long version 1 can be read.
    ends = column(table, "timestamp")[1] + timedelta(days=7)
    assert column(table, "readable_until") == [None, ends, None]
    confs(GUARD, "false")
    assert column(table, "readable") == ["yes", "yes", "yes"]
    assert column(table, "readable_until") == [None, None, None]


def test_a_version_can_be_read_until_its_first_file_may_be_vacuumed(tmp_path: Path, confs: SetConf) -> None:
    """VACUUM deletes a file that was both removed and written longer ago than the retention."""
    confs(GUARD, "false")
    draw, now = random.Random(11), datetime.now(UTC).replace(microsecond=0)
    modified = [now - timedelta(days=draw.choice([20, 20, 1])) for _ in range(75)]
    commits, live, ends = [[add("0")]], ["0"], [list[datetime]()]
    for version in range(1, 75):
        commits.append([add(str(version))])
        ends.append([])
        for name in draw.sample(live, draw.choice([0, 0, 1, min(len(live), 3)])):
            at = now - timedelta(minutes=draw.randrange(10_000))
            commits[-1].append(remove(name, int(at.timestamp() * 1000)))
            live.remove(name)
            # A file is named by the version that added it.
            for needs in ends[int(name) : version]:
                needs.append(max(at, modified[int(name)]) + timedelta(days=7))
        live.append(str(version))
    table = written(tmp_path, *commits)
    for version, time in enumerate(modified):
        os.utime(table / str(version), (time.timestamp(), time.timestamp()))
    assert column(table, "readable_until") == [min(times, default=None) for times in ends]


def test_a_version_can_be_read_instead_of_another_with_the_same_content(tmp_path: Path) -> None:
    merged = remove("b"), remove("c"), add("d", records=20)
    table = written(
        tmp_path,
        [add("a"), add("b")],
        [add("c")],
        [{"commitInfo": {"operation": "OPTIMIZE"}}, *map(unchanged, merged)],
        [{"commitInfo": {"operation": "SET TBLPROPERTIES"}}, handmade.metadata(configuration={"x": "y"})],
        [{"commitInfo": {"operation": "ADD COLUMNS"}}, handmade.metadata({"id": "long", "c": "long"})],
        [remove("a")],
        [add("a")],
    )
    counted, identical = "row counts agree", "identical files"
    assert column(table, "same_content_as") == [None, 2, 1, 1, 6, None, 4]
    assert column(table, "same_content_by") == [None, counted, counted, counted, identical, None, identical]
    (table / "c").unlink()
    assert column(table, "read_instead") == [None, 3, None, None, None, None, None]


def test_history_counts_the_live_files_of_every_version(tmp_path: Path) -> None:
    vector, large = handmade.vector("0rJua"), 16 * MIB
    write_log(
        tmp_path,
        [add("a%20b", 10), add("c", large)],
        [remove("a%20b"), add("d", 5)],
        [add("a%20b", 10), add("d", 5, vector=vector), remove("d")],
        [{"commitInfo": {"operation": "SET TBLPROPERTIES"}}],
    )
    history = open_table(tmp_path).history()
    assert history["num_files"].to_pylist() == [2, 2, 3, 3]
    assert history["num_small_files"].to_pylist() == [1, 1, 2, 2]
    assert history["size_bytes"].to_pylist() == [large + 10, large + 5, large + 15, large + 15]


def test_history_counts_small_files_as_the_files_do(tmp_path: Path) -> None:
    metadata = handmade.metadata(configuration={"delta.targetFileSize": "100"})
    table = open_table(handmade.write_log(tmp_path, [metadata, add("a", 49), add("b", 50)], [remove("a")]))
    assert table.history()["num_small_files"].to_pylist() == [1, 0]
    assert table.files().stats().num_small_files == 0


def test_history_says_what_describe_history_says(
    spark: SparkSession, copy_of: CopyOf, lived: Path, confs: SetConf
) -> None:
    table = copy_of(lived)
    # As old as the commit before: Delta makes commit times increase.
    times = handmade.commit_path(table, 3).stat()
    os.utime(handmade.commit_path(table, 4), ns=(times.st_atime_ns, times.st_mtime_ns))
    confs("spark.databricks.delta.commitInfo.userMetadata", "a note")
    spark.range(3).selectExpr("id", "'1' p").write.format("delta").mode("append").save(str(table))
    history = spark.sql(f"DESCRIBE HISTORY delta.`{table}`")
    described = history.selectExpr("*", "unix_millis(timestamp) millis").collect()
    own = open_table(table).history().sort_by([("version", "descending")]).to_pylist()
    assert own[0]["user_metadata"] == "a note"
    names = ("version", "operation", "isolationLevel", "userMetadata", "engineInfo", "readVersion")
    keys = ("version", "operation", "isolation_level", "user_metadata", "engine", "read_version")
    for row, mine in zip(described, own, strict=True):
        assert [mine[key] for key in keys] == [row[name] for name in names]
        assert mine["is_blind_append"] == row["isBlindAppend"]
        assert mine["timestamp"].timestamp() * 1000 == row["millis"]
        assert dict(mine["parameters"] or {}) == row["operationParameters"]
        assert dict(mine["metrics"] or {}) == (row["operationMetrics"] or {})


def test_log_files_go_with_all_before_a_checkpoint_when_the_last_has_expired(tmp_path: Path) -> None:
    commits = [[add(f"{version}")] for version in range(6)]
    commits[0] += [handmade.protocol(), handmade.metadata()]
    write_log(tmp_path, *commits)
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for version in (1, 4):
        checkpoints.write_classic(tmp_path, version, checkpoints.replay(commits[: version + 1]))
    for file in (tmp_path / "_delta_log").iterdir():
        seconds = (midnight - timedelta(days=40 - 10 * int(file.name[:20]), hours=1)).timestamp()
        os.utime(file, (seconds, seconds))
    table = open_table(tmp_path)

    def going(at: datetime | None = None) -> list[str]:
        expiry = table.log_expiry(at)
        return expiry.filter(expiry["goes"])["name"].to_pylist()

    rows = table.log_expiry().to_pylist()
    assert {row["name"]: row["checkpoint"] for row in rows} == {
        **dict(zip(map(handmade.log_name, range(6)), (1, 4, 4, 4, None, None), strict=True)),
        handmade.log_name(1, "checkpoint.parquet"): 4,
        handmade.log_name(4, "checkpoint.parquet"): None,
    }
    # Log files are kept for 30 days, and expire at midnight UTC.
    assert [(row["expires"] - midnight) / timedelta(days=1) for row in rows[:3]] == [-10, 0, 0]
    # Versions 1 to 3 go together, when the last of them has expired.
    assert going() == going(midnight + timedelta(days=19)) == [handmade.log_name(0)]
    later = [*map(handmade.log_name, range(4)), handmade.log_name(1, "checkpoint.parquet")]
    for days in (20, 99):
        assert sorted(going(midnight + timedelta(days=days))) == sorted(later)
    off = handmade.metadata(configuration={"delta.enableExpiredLogCleanup": "false"})
    handmade.write_commit(tmp_path, 6, [off])
    assert going(midnight + timedelta(days=99)) == []


@since_delta("4.0")
@pytest.mark.parametrize(
    ("days", "going"),
    [
        pytest.param({"2.1": 49}, ["0.json", "1.json", "2.1", "2.json", "3.json"], id="a part is as old"),
        pytest.param({"4": 47}, ["0.json", "1.json"], id="a checkpoint is as old as the commit before"),
        pytest.param({"1.json": 9, "2.1": 8, "2.2": 8}, ["2.1", "2.2", "2.json", "3.json"], id="times fall"),
    ],
)
def test_delta_deletes_the_log_files_that_go(
    spark: SparkSession, tmp_path: Path, days: dict[str, int], going: list[str]
) -> None:
    now, commits = datetime.now(UTC).timestamp(), [[add(f"{version}")] for version in range(6)]
    commits[0] += [handmade.protocol(), handmade.metadata()]
    write_log(tmp_path, *commits)
    files = {f"{version}.json": handmade.commit_path(tmp_path, version) for version in range(5)}
    for version, parts, names in ((2, 2, ("2.1", "2.2")), (4, None, ("4",))):
        state = checkpoints.replay(commits[: version + 1])
        files |= zip(names, checkpoints.write_classic(tmp_path, version, state, parts=parts), strict=True)
    for name, path in files.items():
        # Delta's checkpoint of version 5 ends another group of log files, which stays.
        seconds = now - 86_400 * ({"4.json": 1} | days).get(name, 50 - int(name[0]))
        os.utime(path, (seconds, seconds))
    expiry = open_table(tmp_path).log_expiry()
    assert {files[name].name for name in going} == {*expiry.filter(expiry["goes"])["name"].to_pylist()}
    deltas_view.checkpoint(spark, tmp_path)
    assert sorted(going) == sorted(name for name, path in files.items() if not path.exists())


def test_a_time_picks_a_commit(tmp_path: Path, shaped: Path) -> None:
    _, second, third = times = [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    head = [handmade.protocol(), handmade.metadata(configuration={"delta.enableInCommitTimestamps": "true"})]
    for version, time in enumerate(times):
        info = {"operation": "WRITE", "inCommitTimestamp": int(time.timestamp() * 1000)}
        actions = [{"commitInfo": info}, *(head if version == 0 else []), add(f"{version}")]
        handmade.write_commit(tmp_path, version, actions)
    table = open_table(tmp_path)
    picked = table.at(timestamp="2024-01-02 12:00:00+00:00")
    assert (picked.version, picked.timestamp, picked.superseded_at) == (1, second, third)
    shown = [time.astimezone(session_zone()).isoformat(" ", "milliseconds") for time in (second, third)]
    assert f"committed {shown[0]} by its in-commit timestamp, superseded {shown[1]}" in repr(picked)
    assert repr(table.at(timestamp=third)).endswith("by its in-commit timestamp, the latest")
    committed = open_table(shaped).history()["timestamp"][3].as_py()
    assert "by the time of its file" in repr(open_table(shaped).at(timestamp=committed))
    outside = {"2023-12-31": "before version 0, the earliest", "2024-01-04": "after version 2, the latest"}
    for timestamp, words in outside.items():
        refused(partial(table.at, timestamp=timestamp), InvalidArgumentError, words)


def test_bytes_are_live_tombstoned_or_gone_and_orphans_are_apart(tmp_path: Path) -> None:
    table = write_log(
        tmp_path,
        [add("a", 1), add("b", 10)],
        [remove("a"), remove("b"), add("c", 100)],
        # b comes back with a deletion vector, and counts as one file all the time.
        [add("b", 10, vector=handmade.vector("0rJua"))],
    )
    for name in ("b", "c"):
        (table / name).write_text("x")
    (table / "orphan").write_text("12345")
    (table / "_hidden").write_text("1")
    storage = open_table(table).storage()
    assert storage.orphaned_bytes == 5
    assert storage.versions.to_pydict() == {
        "version": [0, 1, 2],
        "live_bytes": [11, 100, 110],
        "tombstoned_bytes": [0, 10, 0],
        "gone_bytes": [0, 1, 1],
    }
    assert repr(storage) == "Storage(version 2: 110 B live, 0 B tombstoned, 5 B orphaned)"

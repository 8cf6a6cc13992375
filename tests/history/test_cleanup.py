from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from tests import checkpoints, deltas_view, folders, handmade
from tests.ageing import age_file
from tests.releases import since_delta

DAYS = 40


# Protocol features and checkpoint interval of a policy: Delta's next checkpoint is of version 10, and of 9.
POLICIES = {"classic": ([], "10"), "v2": (["v2Checkpoint"], "3")}


def actions(policy: str, version: int) -> list[handmade.Action]:
    """What the commit of a version says."""
    features, interval = POLICIES[policy]
    properties = {"delta.checkpointPolicy": policy, "delta.checkpointInterval": interval}
    head = [handmade.protocol(features=features), handmade.metadata(configuration=properties)]
    return [*(head if version == 0 else []), handmade.add(f"{version}")]


def write_checkpoint(table: Path, policy: str, version: int) -> None:
    state = checkpoints.replay([actions(policy, before) for before in range(version + 1)])
    if policy == "classic":
        checkpoints.write_classic(table, version, state)
    else:
        checkpoints.write_v2(table, version, state, sidecars=1)
    hint = table / "_delta_log" / "_last_checkpoint"
    hint.write_text(f'{{"version":{version},"size":9}}')
    # With another one's checksum Delta would wait for it to become right.
    hint.with_name("._last_checkpoint.crc").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Logs of 9 commits with a checkpoint of version 3, and Delta's own of 6, classic ones and V2."""
    made = {}
    for policy in POLICIES:
        table = tmp_path_factory.mktemp("cleanup") / policy
        for version in range(9):
            handmade.write_commit(table, version, actions(policy, version))
            if version == 3:
                write_checkpoint(table, policy, version)
            elif version == 6:
                deltas_view.checkpoint(spark, table)
        for version in range(6):
            # Of versions that Delta has no reason to read it of any more.
            handmade.commit_path(table, version, "crc").write_text("{}")
        made[policy] = table
    return made


# How old the commits of versions 0 to 8 are, in days, and what else happened to the log.
SHAPES = {
    "all old": ([40] * 9, ()),
    "none old": ([20] * 9, ()),
    "half old": ([50, 49, 48, 47, 46, 20, 19, 18, 17], ()),
    "old up to a checkpoint": ([50, 49, 48, 47, 20, 19, 18, 17, 16], ()),
    "old up to before a checkpoint": ([50, 49, 48, 20, 19, 18, 17, 16, 15], ()),
    "times that fall": ([40, 40, 40, 40, 45, 45, 40, 20, 20], ()),
    "a young one first": ([20, 40, 40, 40, 40, 40, 40, 40, 40], ()),
    "without the first checkpoint": ([40, 40, 40, 40, 40, 40, 20, 20, 20], (3,)),
    "without checkpoints": ([40, 40, 40, 40, 40, 20, 20, 20, 20], (3, 6)),
    "with its beginning gone": ([40, 40, 40, 40, 40, 40, 40, 20, 20], ("head",)),
}


@pytest.mark.spark
@pytest.mark.parametrize("policy", POLICIES)
@since_delta("4.0")
def test_a_cleanup_takes_the_files_that_were_told(
    spark: SparkSession, tables: dict[str, Path], tmp_path: Path, policy: str
) -> None:
    for shape, (ages, changes) in SHAPES.items():
        table = folders.copy(tables[policy], tmp_path / f"{policy} {shape}")
        change_log(table, ages, changes)
        told = open_table(table).plan_log_cleanup()
        before = log_files(table)
        # Commits are written by hand, as they take Spark longer than the cleanup; so are checkpoints but one.
        for version in range(9, told.checkpoint + 1):
            handmade.write_commit(table, version, actions(policy, version))
        if shape == "all old":
            deltas_view.checkpoint(spark, table)
        else:
            deltas_view.clean_up(spark, table, partial(write_checkpoint, table, policy, told.checkpoint))
        gone = before - log_files(table)
        assert (shape, set(told.going["name"].to_pylist())) == (shape, gone)
        assert (shape, bool(gone)) == (shape, bool(told.versions_lost))


@pytest.mark.spark
@pytest.mark.parametrize(("interval", "checkpoint"), [("3", 9), ("10", 10)])
@since_delta("4.0")
def test_delta_writes_its_next_checkpoint_when_it_is_told_to_and_takes_what_was_told(
    spark: SparkSession, tmp_path: Path, interval: str, checkpoint: int
) -> None:
    metadata = handmade.metadata(configuration={"delta.checkpointInterval": interval})
    handmade.write_log(
        tmp_path, [metadata, handmade.add("0")], *([handmade.add(f"{n}")] for n in range(1, 9))
    )
    handmade.commit_path(tmp_path, 0, "crc").write_text("{}")
    for file in (tmp_path / "_delta_log").iterdir():
        age_file(file, DAYS)
    told = open_table(tmp_path).plan_log_cleanup()
    assert told.checkpoint == checkpoint
    before = log_files(tmp_path)
    commit_up_to(spark, tmp_path, checkpoint - 1)
    assert before <= log_files(tmp_path)
    commit_up_to(spark, tmp_path, checkpoint)
    gone = before - log_files(tmp_path)
    assert set(told.going["name"].to_pylist()) == gone
    assert handmade.commit_path(tmp_path, checkpoint, "checkpoint.parquet").exists()
    # A commit in between is younger, so that what is before this checkpoint stays once more.
    assert len(gone) == (10 if checkpoint == 9 else 0)
    assert told.versions_lost == (list(range(9)) if checkpoint == 9 else [])


def commit_up_to(spark: SparkSession, table: Path, version: int) -> None:
    deltas_view.forget(spark)
    while open_table(table).version < version:
        spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('kit.note' = 'x')").collect()


def change_log(table: Path, ages: list[int], changes: tuple[int | str, ...]) -> None:
    log = table / "_delta_log"
    for file in log.rglob("*"):
        if file.name[:20].isdigit():
            age_file(file, ages[int(file.name[:20])])
        elif file.parent.name == "_sidecars":
            age_file(file, max(ages))
    for version in changes:
        for file in log.glob(f"{version:020d}.checkpoint*" if version != "head" else ".nothing"):
            file.unlink()
    if "head" in changes:
        handmade.remove_commits(table, 0, 1)
    (log / "_last_checkpoint").unlink(missing_ok=True)


def log_files(table: Path) -> set[str]:
    log = table / "_delta_log"
    return {str(path.relative_to(log)) for path in log.rglob("*") if path.is_file() and path.name[0] != "."}


def test_the_cutoff_is_a_midnight_and_the_next_day_more_goes(tmp_path: Path) -> None:
    handmade.write_log(tmp_path, *([handmade.add(name)] for name in "abc"))
    for version, days in enumerate((33, 32, 31)):
        age_file(handmade.commit_path(tmp_path, version), days)
    table = open_table(tmp_path)
    told = table.plan_log_cleanup()
    assert told.cutoff.timetz() == datetime(2024, 1, 1, tzinfo=UTC).timetz()
    assert told.at - timedelta(days=31) < told.cutoff <= told.at - timedelta(days=30)


def test_a_table_that_forbids_it_loses_nothing(tmp_path: Path) -> None:
    metadata = handmade.metadata(configuration={"delta.enableExpiredLogCleanup": "false"})
    handmade.write_log(tmp_path, [metadata, handmade.add("a")], [handmade.add("b")])
    for version in (0, 1):
        age_file(handmade.commit_path(tmp_path, version), DAYS)
    told = open_table(tmp_path).plan_log_cleanup()
    assert told.going.num_rows == 0
    assert "delta.enableExpiredLogCleanup is false" in told.explain()


def test_a_young_log_stays_and_says_until_when(tmp_path: Path) -> None:
    metadata = handmade.metadata(configuration={"delta.checkpointInterval": "2"})
    handmade.write_log(tmp_path, [metadata, handmade.add("a")], [handmade.add("b")])
    told = open_table(tmp_path).plan_log_cleanup()
    assert told.versions_lost == []
    assert "would delete nothing" in told.explain()
    assert "No file has expired" in told.explain()
    later = open_table(tmp_path).plan_log_cleanup(datetime.now(UTC) + timedelta(days=32))
    assert later.versions_lost == [0, 1]
    assert "next checkpoint (version 2)" in later.explain()

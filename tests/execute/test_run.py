import copy
import pickle
import random
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from compaction_kit import datasets, open_table
from compaction_kit.arrow.worker.files import write_checksums
from compaction_kit.compaction import CompactionPlan
from compaction_kit.errors import ConflictError, ReadOnlyTableError, RunCancelled, RunFailedError
from compaction_kit.execute import Progress
from compaction_kit.text import format_size
from tests import folders, handmade
from tests.ageing import age
from tests.chance import nightly
from tests.conftest import SetConf
from tests.execute.meanwhile import commit_behind, once_rewriting, wait_until
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("spark")

CONF = "spark.databricks.delta.optimize"


class Stop(Exception):
    pass


def stop_at(step: str, error: type[BaseException]) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        if progress.step.startswith(step):
            raise error

    return report


@pytest.fixture
def many_bins(tmp_path: Path) -> Path:
    """16 partitions of 3 files, so that enough time passes between the first bin and the commit.

    In two partitions, a deletion vector deletes two rows.
    """
    folder = Path(datasets.shaped_table(tmp_path / "table", partitions=16, files=3, rows=30, commits=2))
    actions = [handmade.protocol(features=["deletionVectors"])]
    last = {add["partitionValues"]["part"]: add for add in handmade.actions_of(folder, 2, "add")}
    for add in (last["p0003"], last["p0005"]):
        marked = {"add": add | {"deletionVector": handmade.inline_vector([0, 29])}}
        actions += [handmade.remove(add["path"]), marked]
    handmade.write_commit(folder, 3, actions)
    return folder


@pytest.mark.parametrize("strategy", ["arrow", *nightly("optimize", "rewrite")])
def test_a_run_succeeds_though_its_commit_deletes_the_log_before_it(tmp_path: Path, strategy: str) -> None:
    folder = Path(datasets.shaped_table(tmp_path / "table", partitions=0, files=9, rows=5, commits=9))
    # With version 10 Delta writes a checkpoint and deletes log files older than 30 days.
    age(folder, 40)
    table = open_table(folder)
    plan = table.plan_compaction()
    assert "The run can't be undone: with the checkpoint of version 10" in plan.explain()
    earlier = handmade.write_log(tmp_path / "earlier", *([handmade.add(f"f{i}", 10)] for i in range(9)))
    age(earlier, 40)
    # Of the batches' commits, the second one is version 10, and the first one hasn't expired.
    batches = open_table(earlier).plan_compaction(batch_size=1, min_file_size=20, max_file_size=20)
    assert (batches.num_batches, batches.warnings) == (4, ())
    result = plan.run(strategy)
    assert table.log.readable_range() == range(10, 11)
    assert (result.versions, result.verified, result.as_planned) == ((10,), True, True)
    assert (len(result.sizes_before), len(result.sizes_after)) == (9, 1)
    assert "version" in result.facts()


@pytest.mark.parametrize("strategy", ["arrow", "optimize", *nightly("rewrite")])
def test_progress_of_each_step_is_reported_from_its_start_and_settings_come_back(
    spark: SparkSession, many_bins: Path, confs: SetConf, strategy: str
) -> None:
    confs(f"{CONF}.minFileSize", "123456")
    seen: list[Progress] = []
    plan = open_table(many_bins).plan_compaction(min_file_size="1 MiB", max_file_size="2 MiB")
    result = plan.run(strategy=strategy, progress=seen.append)
    assert result.verified is True
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    first = {progress.step: progress for progress in reversed(seen)}
    # Delta's own commit of so few files can end between two reports.
    committing = ["Committing"] if strategy == "arrow" else []
    told = dict.fromkeys(progress.step for progress in seen if committing or progress.step != "Committing")
    assert list(told) == ["Preparing", "Rewriting", "Comparing the content", *committing, "Done"]
    assert str(first["Preparing"]) == "Preparing"
    assert first["Preparing"].seconds < 0.5
    assert " of 16 bins, " in str(first["Rewriting"])
    size = format_size(plan.bytes_removed)
    assert re.fullmatch(rf"Comparing the content, \d.* of {size}", str(first["Comparing the content"]))
    assert seen[-1].bytes_compared == seen[-1].bytes_done == plan.bytes_removed
    assert (seen[-1].size_bytes, seen[-1].bins_done) == (plan.bytes_removed, plan.num_bins)
    assert {progress.num_bins for progress in seen} == {plan.num_bins}
    assert result.seconds >= seen[-1].seconds > 0
    assert spark.conf.get(f"{CONF}.minFileSize") == "123456"
    assert spark.conf.get(f"{CONF}.maxFileSize", None) is None
    assert spark.conf.get(f"{CONF}.batchSize", None) is None


def test_a_run_can_be_cancelled_until_it_commits(changed: Path) -> None:
    plan = open_table(changed).plan_compaction()
    for path in plan.files["path"].to_pylist():
        write_checksums(f"{changed}/{path}")
    before = folders.listing(changed).keys()
    steps = {"Preparing": Stop, "Rewriting": Stop, "Comparing": KeyboardInterrupt, "Committing": Stop}
    for step, error in steps.items():
        with pytest.raises(RunCancelled, match="nothing was committed, the table is as it was") as caught:
            plan.run(strategy="arrow", progress=stop_at(step, error))
        raised = caught.value.__context__
        assert isinstance((raised and raised.__cause__) or raised, error)
        assert folders.listing(changed).keys() == before


def test_optimize_that_is_cancelled_changes_nothing_and_says_which_files_are_left(
    spark: SparkSession, many_bins: Path, confs: SetConf
) -> None:
    confs(f"{CONF}.maxFileSize", "777777")
    table = open_table(many_bins)
    before = table.files().to_arrow()
    log_before, files_before = folders.listing(many_bins / "_delta_log"), folders.data_files(many_bins)

    def stop_when_a_bin_is_written() -> None:
        wait_until(lambda: folders.data_files(many_bins) > files_before)
        raise Stop

    progress = once_rewriting(stop_when_a_bin_is_written)
    run = partial(table.plan_compaction().run, strategy="optimize", verify=False)
    said = refused(run, RunCancelled, "nothing was committed, the table is as it was", progress=progress)
    assert folders.listing(many_bins / "_delta_log") == log_before
    assert table.files().to_arrow() == before
    # Delta doesn't delete the files that tasks of OPTIMIZE have written.
    left = folders.data_files(many_bins) - files_before
    told = re.search(r"; (\d+) new files? \(.* to no version, and VACUUM deletes", str(said))
    assert told is not None
    assert int(told[1]) == len(left) > 0
    assert spark.conf.get(f"{CONF}.maxFileSize") == "777777"
    assert spark.conf.get(f"{CONF}.minFileSize", None) is None


@pytest.mark.nightly
def test_cancelled_runs_leave_no_new_file(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """A Python worker continues its task for a while after the task was cancelled."""
    folder = Path(datasets.shaped_table(tmp_path / "table", partitions=150, files=2, rows=4))
    before = folders.listing(folder).keys()
    moments = random.Random(4)
    for _ in range(100 if pytestconfig.getoption("long") else 2):
        plan, most = open_table(folder).plan_compaction(), moments.random()

        def stop(progress: Progress, plan: CompactionPlan = plan, most: float = most) -> None:
            if progress.bins_done >= most * plan.num_bins:
                raise Stop

        with pytest.raises(RunCancelled):
            plan.run(strategy="arrow", progress=stop)
        time.sleep(0.3)
        assert folders.listing(folder).keys() == before


@pytest.mark.parametrize(
    ("strategy", "removes"),
    [
        ("optimize", True),
        ("arrow", True),
        *nightly(("optimize", False), ("arrow", False), ("rewrite", False)),
    ],
)
def test_what_another_writer_appends_is_kept_and_what_it_removes_is_left_out(
    many_bins: Path, strategy: str, removes: bool
) -> None:
    table = open_table(many_bins)
    plan = table.plan_compaction()
    removed = plan.files["path"].to_pylist()[0]
    rows = pq.ParquetFile(many_bins / removed).read()
    # OPTIMIZE searches again for the rest of a bin, and would take a new file of the same partition too.
    actions = [handmade.write_data(many_bins, "part=new/f.parquet", rows, {"part": "new"})]
    if removes:
        actions.append(handmade.remove(removed, int(time.time() * 1000)))
    act = commit_behind(many_bins, plan.version + 1, actions)
    result = plan.run(strategy=strategy, progress=once_rewriting(act))
    assert (result.verified, result.as_planned) == (True, not removes)
    assert result.num_files_removed == plan.num_files_removed - removes
    assert len(result.conflicts) == sum(result.batches["conflicts"].to_pylist()) == removes
    assert ("1 with other writers" in result.summary()) == removes
    ends = (result.sizes_before, result.versions[0] - 1), (result.sizes_after, result.versions[-1])
    assert all(sizes.sum() == table.files(version).sizes.sum() for sizes, version in ends)
    # The appended file was neither rewritten nor compared. Each of the 16 bins is one file now.
    assert result.fingerprint is not None
    assert result.fingerprint.num_rows == 16 * 3 * 30 - 4 - 30 * removes
    files = table.files()
    assert (files.num_files, removed in files.to_arrow()["path"].to_pylist()) == (16 + 1, False)
    if strategy == "arrow" and removes:
        # The outputs of the other 15 bins are committed, and not written again.
        assert result.batches["num_files_added"].to_pylist() == [15, 1]


@pytest.mark.parametrize("strategy", ["optimize", *nightly("rewrite")])
def test_another_thread_keeps_its_settings_and_its_commit(
    spark: SparkSession, changed: Path, confs: SetConf, strategy: str
) -> None:
    settings = {f"{CONF}.minFileSize": "123456", "spark.sql.sources.partitionOverwriteMode": "dynamic"}
    for key, value in settings.items():
        confs(key, value)
    plan = open_table(changed, spark).plan_compaction(where="part <> 'p0002'", min_file_size="1 MiB")
    seen, found = list[Progress](), dict[str, str | None]()
    # RDDs make DataFrames in the session that was created last.
    SparkSession(spark.sparkContext, spark._jsparkSession)

    def compact_the_rest(progress: Progress) -> None:
        seen.append(progress)
        # The first report comes before anything runs.
        if len(seen) == 2:
            found.update({key: spark.conf.get(key) for key in settings})
            spark.sql(f"OPTIMIZE delta.`{changed}` WHERE part = 'p0002'").collect()

    result = plan.run(strategy=strategy, progress=compact_the_rest)
    assert found == settings
    assert (len(result.versions), result.as_planned, result.verified) == (1, True, True)
    assert result.num_files_removed == plan.num_files_removed
    (other,) = {5, 6}.difference(result.versions)
    commits = open_table(changed).log.commits()
    assert commits["operation"][other].as_py() == "OPTIMIZE"
    assert commits["user_metadata"][other].as_py() is None
    confs(f"{CONF}.minFileSize", "654321")
    frame = spark.sparkContext.parallelize([(1,)]).toDF("id INT")
    assert frame.sparkSession.conf.get(f"{CONF}.minFileSize") == "654321"
    # PySpark's active session is the one that last made a DataFrame.
    spark.createDataFrame([], "id INT")


@pytest.mark.parametrize("strategy", ["arrow", *nightly("optimize")])
def test_a_writer_who_takes_everything_wins(changed: Path, strategy: str) -> None:
    table = open_table(changed)
    plan = table.plan_compaction()
    now, paths = int(time.time() * 1000), plan.source.to_arrow()["path"].to_pylist()
    info = {"commitInfo": {"timestamp": now, "operation": "DELETE"}}
    act = commit_behind(changed, 5, [info, *(handmade.remove(path, now) for path in paths)])
    told = ["Another writer removed 21 of the plan's 21 files (DELETE, version 5), ", ": make a new plan; "]
    # Spark's tasks don't delete the files that they wrote.
    told += ["in its folder belong to no version, and VACUUM deletes them."] if strategy == "optimize" else []
    run = partial(plan.run, strategy=strategy, verify=False)
    refused(run, ConflictError, *told, progress=once_rewriting(act))
    assert (table.version, table.files().num_files) == (5, 0)


def test_a_data_file_that_is_damaged_or_gone_stops_every_strategy(
    spark: SparkSession, tmp_path: Path, confs: SetConf
) -> None:
    """With ignoreCorruptFiles Spark would skip its rows, and so would the fingerprints of both sides."""
    confs("spark.sql.files.ignoreCorruptFiles", "true")
    folder = tmp_path / "table"
    spark.range(0, 20, 1, 2).write.format("delta").save(str(folder))
    plan = open_table(folder).plan_compaction()
    file = folder / str(plan.files["path"][0])
    sums = file.with_name(f".{file.name}.crc")

    def fail(strategy: str, *told: str) -> str:
        as_it_was = "nothing was committed, the table is as it was: "
        return str(refused(plan.run, RunFailedError, as_it_was, *told, strategy=strategy, verify=False))

    # Only Hadoop's checksum shows the damage; the file itself can be read.
    sums.write_bytes(sums.read_bytes()[:-1] + b"?")
    before = folders.data_files(folder)
    fail("arrow", f"{file.name} differs from its checksums")
    assert folders.data_files(folder) == before
    fail("optimize")
    fail("rewrite")
    file.unlink()
    advice = "; table.versions() says which versions have all their files"
    fail("arrow", ".parquet", advice)
    assert re.search(r"(?i)not.exist", fail("optimize", advice))
    assert open_table(folder).version == 0


def test_a_table_without_write_permission_is_refused_at_first(changed: Path) -> None:
    plan, told = open_table(changed).plan_compaction(), "can't be written to: get write permission"
    before = folders.listing(changed)
    with folders.no_permission(changed, changed, changed / "_delta_log"):
        for strategy in ("arrow", "optimize", "rewrite"):
            error = refused(plan.run, ReadOnlyTableError, f"{changed} {told}", strategy=strategy)
            assert isinstance(error, PermissionError)
        # Planning and reading need no write permission.
        assert open_table(changed).files().num_files == plan.source.num_files
    assert folders.listing(changed) == before


def test_a_result_can_be_copied_and_pickled(spark: SparkSession, changed: Path) -> None:
    result = open_table(changed, spark).plan_compaction().run(verify=False)
    opened = result.measure_reads("id < 3", 1).files_after
    pickled = pickle.loads(pickle.dumps(result))
    assert copy.deepcopy(result).summary() == pickled.summary() == result.summary()
    assert pickled.measure_reads("id < 3", 1).files_after == opened

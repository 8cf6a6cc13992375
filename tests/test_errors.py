import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import CorruptLogError, RunFailedError, reason_of
from tests import handmade

CopyOf = Callable[[Path], Path]


def test_a_librarys_error_is_kept_as_the_cause_and_not_printed(tmp_path: Path) -> None:
    table = handmade.write_log(tmp_path, [handmade.add("a")])
    handmade.commit_path(table, 0).write_text("{")
    with pytest.raises(CorruptLogError) as caught:
        open_table(table).files()
    printed = "".join(traceback.format_exception(caught.value))
    assert printed.count("Traceback") == 1
    assert printed.endswith(f"CorruptLogError: {caught.value}\n")
    assert not isinstance(caught.value.cause, CorruptLogError | None)
    assert CorruptLogError("of itself").cause is None


@pytest.mark.spark
def test_a_failed_run_prints_its_sentence_without_java_and_names_the_innermost_missing_file(
    spark: SparkSession, copy_of: CopyOf, lived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = copy_of(lived)
    vectors = list(table.glob("deletion_vector_*.bin"))
    for file in vectors:
        file.unlink()
    shell = InteractiveShell.instance(colors="nocolor")
    shell.user_ns["plan"] = open_table(table, spark).plan_compaction(where="p = '1'")
    error = shell.run_cell("number = 1\nplan.run('optimize', verify=False)").error_in_exec  # type: ignore[no-untyped-call]
    assert isinstance(error, RunFailedError)
    assert any(f"{file} does not exist" in str(error) for file in vectors)
    assert isinstance(error.cause, Py4JJavaError)
    assert "Java" not in "".join(traceback.format_exception(error))
    *lines, sentence = capsys.readouterr().out.strip().splitlines()
    assert sentence == f"RunFailedError: {error}"
    assert lines[-1].strip() == "plan.run('optimize', verify=False)"
    assert len(lines) == 3


def test_a_worker_that_does_not_start_is_named_by_what_python_raised() -> None:
    """As Spark says it where a file in the working folder has the name of a module of Python's."""
    text = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 1 times: \
org.apache.spark.SparkException:\x20
Error from python worker:
  Traceback (most recent call last):
    File "<frozen runpy>", line 189, in _run_module_as_main
    File "copy.py", line 4, in <module>
  FileNotFoundError: [Errno 2] No such file or directory: 'numbers.csv'
PYTHONPATH was:
  pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number
"""
    reason = "FileNotFoundError: [Errno 2] No such file or directory: 'numbers.csv'"
    assert reason_of(RuntimeError(text)) == reason

import traceback
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.sql import SparkSession

from compaction_kit import errors, open_table
from compaction_kit.execute.failures import ContentDiffers, TableChanged, translate
from compaction_kit.session import quiet_errors
from tests import handmade
from tests.conftest import CopyOf


def test_a_librarys_error_is_kept_as_the_cause_and_not_printed(tmp_path: Path) -> None:
    table = handmade.write_log(tmp_path, [handmade.add("a")])
    handmade.commit_path(table, 0).write_text("{")
    with pytest.raises(errors.CorruptLogError) as caught:
        open_table(table).files()
    printed = "".join(traceback.format_exception(caught.value))
    assert printed.count("Traceback") == 1
    assert printed.endswith(f"CorruptLogError: {caught.value}\n")
    assert not isinstance(caught.value.__context__, errors.CorruptLogError | None)


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
    assert isinstance(error, errors.RunFailedError)
    assert any(f"{file} does not exist" in str(error) for file in vectors)
    assert isinstance(error.__context__, Py4JJavaError)
    assert "Java" not in "".join(traceback.format_exception(error))
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    # Newer Pythons underline the call.
    lines = [line for line in printed if line.strip("~^")]
    *_, call, sentence = lines
    assert (len(lines), call) == (4, "plan.run('optimize', verify=False)")
    assert sentence == f"RunFailedError: {error}"


# Spark's messages by the reason that the kit extracts.
SAID = {
    "[PARSE_SYNTAX_ERROR] Syntax error": (
        "\n[PARSE_SYNTAX_ERROR] Syntax error. SQLSTATE: 42601 (line 1)\n\n== SQL =="
    ),
    "ZeroDivisionError: division by zero": (
        "\n  An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "a.py", line 1, in f\nZeroDivisionError: division by zero\n'
    ),
    "disk full": "An error occurred while calling o1.a.\n: java.io.IOException: disk full\n\tat a.b(C.java)",
    # No worker starts if a file in the working folder has the name of one of Python's modules.
    "FileNotFoundError: No such file: 'numbers.csv'": (
        ": org.apache.spark.SparkException: Job aborted: \nError from python worker:\n"
        '  Traceback (most recent call last):\n    File "copy.py", line 4, in <module>\n'
        "  FileNotFoundError: No such file: 'numbers.csv'\nPYTHONPATH was:\n  pyspark.zip\n"
        "org.apache.spark.SparkException: EOFException occurred while reading the port number\n"
    ),
    '[CANNOT_MERGE_SCHEMAS] Failed merging schemas: Initial schema: "struct<a:int>" Other schema: "string"': (
        '[CANNOT_MERGE_SCHEMAS] Failed merging schemas:\nInitial schema:\n"struct<a:int>"\n'
        'Other schema:\n"string". SQLSTATE: 42KD9\n\tat a.b(C.java)'
    ),
}


@pytest.mark.parametrize("reason", SAID)
def test_a_reason_is_one_line_of_what_spark_said(reason: str) -> None:
    assert errors.reason_of(RuntimeError(SAID[reason])) == reason


def test_an_error_without_a_message_is_named_by_its_class() -> None:
    """PySpark 3.5 writes "None" if there is no message."""
    for message in ("", "None", "An error occurred while calling o1.save.\n: "):
        assert errors.first_line(RuntimeError(message)) == "RuntimeError"
    assert errors.reason_of(RuntimeError("None")) == "RuntimeError"


def test_a_failed_run_says_what_to_do() -> None:
    said: list[tuple[Any, ...]] = [
        ("Java has ended: restart the kernel; nothing", ConnectionRefusedError(), Py4JNetworkError()),
        ("Java has ended: restart", Py4JError("An error occurred while calling o63.get")),
        ("nothing was committed: Connection refused", "Connection refused\nin Java"),
        ("The disk of /t is full", "No space left on device", "Disk quota exceeded"),
        ("free memory and run the plan again; nothing", "Python worker exited unexpectedly"),
        ("/t may not be read or written to (Permission denied: 'a')", "Permission denied: 'a'"),
        ("/t may not be read", "Read-only file system", "AccessDenied"),
        ("nothing was committed: a can't be read", "a can't be read: Permission denied"),
        ("; table.versions() says", "No such file or directory", "FILE_NOT_EXIST", "FileNotFoundException"),
        ("Another writer changed the table, files are gone: make", TableChanged("files are gone")),
        ("Another writer changed the table, so Delta refused the commit: make", "DELTA_CONCURRENT_APPEND"),
        ("a is b; nothing was committed: plan again.", ContentDiffers("a is b", "plan again")),
    ]
    kinds = {"/t": errors.ReadOnlyTableError, "An": errors.ConflictError, "a ": errors.VerificationError}
    for words, *causes in said:
        for cause in causes:
            known = cause if isinstance(cause, Exception) else Exception(cause)
            error = translate(known, "/t", "nothing was committed")
            assert type(error) is kinds.get(words[:2], errors.RunFailedError)
            assert words in str(error)
            assert ("versions" in str(error)) == ("versions" in words)


def test_an_error_that_ctrl_c_has_caused_says_that_the_run_was_cancelled() -> None:
    """In a call into Java, py4j raises an error of its own instead of KeyboardInterrupt."""
    for error in (Py4JError("Gateway must be connected to send cancel cmd."), Py4JNetworkError("")):
        error.__context__ = Py4JNetworkError("Error while sending")
        error.__context__.__context__ = KeyboardInterrupt()
        found = translate(error, "/t", "nothing was committed")
        assert (type(found), str(found)) == (
            errors.RunCancelled,
            "The run was cancelled: nothing was committed.",
        )
        with pytest.raises(KeyboardInterrupt), quiet_errors():
            raise error

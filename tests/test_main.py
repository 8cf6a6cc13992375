import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compaction_kit import open_table, survey
from compaction_kit.__main__ import main
from tests import folders, handmade
from tests.chance import nightly
from tests.test_project import PROJECT


def printed(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    """Return the JSON that a command prints."""
    assert main([*map(str, arguments), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_help_tells_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in ((["--help"], 0), (["audit", "--help"], 0), (["vacuum", "."], 2)):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == code
        assert ("\n  1  found: " in capsys.readouterr().out) == (code == 0)


def test_a_plan_is_shown_and_nothing_is_changed(shaped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = folders.listing(shaped)
    plan = open_table(shaped).plan_compaction(max_file_size="1 MiB")
    assert main(["plan", str(shaped), "--max-file-size", "1 MiB"]) == 0
    assert capsys.readouterr().out == f"{plan.explain()}\n"
    assert printed(capsys, "plan", shaped, "--max-file-size=1 MiB", "--check", code=1) == plan.to_dict()
    assert main(["plan", str(shaped), "--min-file-size", "1", "--check"]) == 0
    assert folders.listing(shaped) == before


def test_an_empty_table_needs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = handmade.write_log(tmp_path / "empty", [handmade.add("a", 10)], [handmade.remove("a")])
    for command, option in (("plan", "--check"), ("run", "--yes")):
        assert main([command, str(table), option]) == 0
        shown = capsys.readouterr()
        assert (shown.out, "nothing to compact" in shown.err) == ("", True)
        assert printed(capsys, command, table, option) == {}
    handmade.write_log(tmp_path / "good", [handmade.add("a")])
    assert len(printed(capsys, "survey", tmp_path)["rows"]) == 2


@pytest.mark.usefixtures("spark")
def test_a_run_shows_its_plan_and_asks_and_is_proved_and_audited(
    changed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, plan = folders.listing(changed), open_table(changed).plan_compaction()
    for answer in ("", "n\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert main(["run", str(changed)]) == 2
        shown = capsys.readouterr()
        assert shown.out == f"{plan.explain()}\n"
        assert shown.err.endswith("Nothing was changed: answer y, or give --yes.\n")
    assert folders.listing(changed) == before
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main(["run", str(changed), "--json"]) == 0
    shown = capsys.readouterr()
    result = json.loads(shown.out)
    assert (result["versions"], result["num_files_removed"]) == ([5], plan.num_files_removed)
    assert " at 0x" not in shown.out
    assert plan.explain() in shown.err
    assert printed(capsys, "run", changed, "--yes")["versions"] == []
    diff = printed(capsys, "verify", changed)
    assert (diff["start"], diff["end"], diff["same_content_by"]) == (4, 5, "proved")
    (row,) = printed(capsys, "audit", changed)["rows"]
    assert (row["version"], row["outcome"]) == (5, "proved")


@pytest.mark.usefixtures("spark")
def test_a_rewrite_that_loses_a_row_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "false"
    old, new = (handmade.write_data(table, name, pa.table({"id": range(int(name))})) for name in "32")
    handmade.write_log(table, [old], list(map(handmade.unchanged, [handmade.remove("3"), new])))
    (row,) = printed(capsys, "audit", tmp_path, code=1)["rows"]
    assert (row["outcome"], row["reason"]) == ("refuted", "3 rows became 2")
    assert main(["verify", str(table), "--versions", "0", "1"]) == 1
    assert "different: other rows" in capsys.readouterr().out
    assert main(["audit", str(table), "--since", "2999-01-01"]) == 0
    assert capsys.readouterr().out == f"0 rewrites in {table}.\n"


def test_a_survey_of_a_bad_table_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    handmade.write_log(tmp_path / "a", [handmade.add("a")])
    assert main(["survey", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{survey(tmp_path).summary()}\n"
    handmade.write_commit(tmp_path / "a", 1, [handmade.protocol(features=["fancy"])])
    (row,) = printed(capsys, "survey", tmp_path, code=1)["rows"]
    assert "fancy" in row["error"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("run {}", "is not a Delta table"),
        ("plan {}/t --max-file-size big", 'max_file_size="big" is not a size'),
        ("verify {}/t", "rewrites files: give --versions START END"),
        ("verify {}/t --versions 0 7", "7"),
        ("audit {}/t --since soon", 'since="soon" is not a time'),
        # An empty path.
        ("plan ", "The current folder is not a Delta table"),
    ],
)
def test_bad_input_prints_a_sentence_and_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, words: str
) -> None:
    handmade.write_log(tmp_path / "t", [handmade.add("a")])
    words_given = arguments.format(tmp_path).split(" ")
    assert main(words_given) == 2
    shown = capsys.readouterr()
    assert (shown.out, words in shown.err, len(shown.err.splitlines())) == ("", True, 1)
    assert printed(capsys, *words_given, code=2) == {"error": shown.err.rstrip("\n")}


def test_an_interrupted_command_prints_json_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        def readline(self) -> str:
            raise KeyboardInterrupt

    handmade.write_log(tmp_path, *[[handmade.add(name)] for name in "ab"])
    monkeypatch.setattr(sys, "stdin", Interrupted())
    assert "the history of the table says" in printed(capsys, "run", tmp_path, code=2)["error"]


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("plan a | true; exit ${PIPESTATUS[0]}", 2),
        ("run a < <(sleep 60 2>&-) 2> said & until grep Run said; do sleep 0.1; done; kill %1; wait %1", 2),
        *nightly(("PYTHONIOENCODING=latin-1 survey .", 0), ("survey . 2>&-", 0)),
        *nightly(("plan a --json > /dev/full", 2), ("plan a >&-", 0), ("run a <&- >&-", 2)),
    ],
)
def test_a_closed_pipe_and_an_encoding_without_arrows_do_not_crash(
    tmp_path: Path, case: str, code: int
) -> None:
    handmade.write_log(tmp_path / "a", *[[handmade.add(name)] for name in "ab"])
    words = re.sub("plan|survey|run", rf"{shlex.quote(sys.executable)} -m compaction_kit \g<0>", case)
    path, command = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, ["bash", "-c", words]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | path, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert ("can't be written ([Errno 28]" in done.stderr) == ("full" in case)


def test_the_installed_command_runs_the_module() -> None:
    assert PROJECT["scripts"] == {"compaction-kit": f"{main.__module__}:{main.__name__}"}

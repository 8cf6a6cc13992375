import json
from pathlib import Path

import compaction_kit as ck


def test_logs_are_found_where_streams_keep_them(tmp_path: Path) -> None:
    entry = {"path": "file:///a", "timestamp": 0, "batchId": 0}
    for place in ("out/_checkpoint", "table/_checkpoint", "elsewhere"):
        folder = tmp_path / place / "sources" / "0"
        folder.mkdir(parents=True)
        (folder / "0").write_text("v1\n" + json.dumps(entry))
    (tmp_path / "out" / "_spark_metadata").mkdir()
    (tmp_path / "out" / "day=1" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "table" / "_delta_log").mkdir()
    assert ck.find_sink_logs(tmp_path) == [
        str(tmp_path / name)
        for name in ("elsewhere/sources/0", "out", "out/_checkpoint/sources/0", "table/_checkpoint/sources/0")
    ]


def test_other_logs_of_a_checkpoint_are_passed_over(tmp_path: Path) -> None:
    offsets = tmp_path / "checkpoint" / "sources" / "0"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text('v1\n{"start": 0}')
    (tmp_path / "checkpoint" / "sources" / "1").mkdir()
    assert ck.find_sink_logs(tmp_path) == []


def test_a_folder_that_is_not_there_has_no_logs(tmp_path: Path) -> None:
    assert ck.find_sink_logs(tmp_path / "typo") == []

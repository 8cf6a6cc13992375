"""Where logs are, and what is none."""

from pathlib import Path

import pytest

from compaction_kit import find_sink_logs, sink_log
from compaction_kit.errors import CorruptLogError, NotASinkLogError, TableNotFoundError
from compaction_kit.sinklog.policy import Policy
from tests.sinklog.streams import LINE, make_log

SOURCE_LINE = '{"path":"file:///in/0.json","timestamp":1587218148000,"batchId":0}'


def test_a_log_is_found_by_its_output_its_checkpoint_and_its_folder(tmp_path: Path) -> None:
    sink = make_log(tmp_path / "out" / "_spark_metadata", b0=f"v1\n{LINE}")
    source = make_log(tmp_path / "cp" / "sources" / "0", b0=f"v1\n{SOURCE_LINE}")
    for path in (sink, sink.parent, f"file://{sink.parent}", source, tmp_path / "cp"):
        log = sink_log(path, policy=Policy())
        kind, folder = ("source", source) if path in (source, tmp_path / "cp") else ("sink", sink)
        assert (log.kind, log.folder, log.num_entries) == (kind, folder, 1)
    assert sink_log(make_log(tmp_path / "a", b0=f"v1\n{LINE}"), policy=Policy()).kind == "sink"


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError, match="does not exist"):
        sink_log(tmp_path / "nothing")
    (tmp_path / "file").write_text("v1")
    with pytest.raises(NotASinkLogError, match="is a file"):
        sink_log(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    with pytest.raises(NotASinkLogError, match="holds no log of a file sink"):
        sink_log(tmp_path / "folder")
    with pytest.raises(NotASinkLogError, match="has not committed a batch yet"):
        sink_log(make_log(tmp_path / "_spark_metadata"))
    with pytest.raises(NotASinkLogError, match="holds no log of a file sink"):
        sink_log(make_log(tmp_path / "commits", b0='v1\n{"nextBatchWatermarkMs":0}'))


def test_a_gap_is_named_unless_no_reader_needs_the_file(tmp_path: Path) -> None:
    for number, (files, message) in enumerate(
        [
            (("b0", "b2"), "misses batch 1: there is no compaction, and the latest batch is 2"),
            (("b3",), "misses batch 0, 1, 2"),
            (
                ("b8", "c9", f"b{10**12}"),
                "misses batch 10, 11, 12, 13, 14 …: the latest compaction is 9.compact",
            ),
        ]
    ):
        folder = make_log(tmp_path / str(number) / "_spark_metadata", **dict.fromkeys(files, "v1"))
        with pytest.raises(CorruptLogError, match=message):
            sink_log(folder, policy=Policy())
    folder = make_log(tmp_path / "_spark_metadata", b3="", c9="v1", b10=f"v1\n{LINE}")
    for name in (".0.crc", ".1.tmp", "junk", "1.tmp", "01"):
        (folder / name).write_text("v1")
    (folder / "11").mkdir()
    log = sink_log(folder, policy=Policy())
    assert log.files["needed"].to_pylist() == [False, True, True]
    assert log.num_entries == 1


def test_logs_are_found_where_streams_keep_them(tmp_path: Path) -> None:
    for place in ("out/_checkpoint", "table/_checkpoint", "elsewhere"):
        make_log(tmp_path / place / "sources" / "0", b0=f"v1\n{SOURCE_LINE}")
    make_log(tmp_path / "other" / "sources" / "0", b0='v1\n{"start": 0}')
    assert find_sink_logs(tmp_path / "typo") == []
    (tmp_path / "out" / "_spark_metadata").mkdir()
    (tmp_path / "out" / "day=1" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "table" / "_delta_log").mkdir()
    assert find_sink_logs(tmp_path) == [
        str(tmp_path / name)
        for name in ("elsewhere/sources/0", "out", "out/_checkpoint/sources/0", "table/_checkpoint/sources/0")
    ]

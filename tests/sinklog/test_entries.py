"""Handmade logs are found, entries are what Python's json reads, and damage is reported."""

import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction_kit import SinkLog, find_sink_logs, sink_log
from compaction_kit.errors import CorruptLogError, InvalidArgumentError, NotASinkLogError, TableNotFoundError
from compaction_kit.sinklog import Policy
from tests import folders
from tests.refusals import refused
from tests.sinklog.streams import ENTRY, LINE, make_log

PATHS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=12),
    st.from_regex(r"file:///[a-z,=%/\"\\]{0,8}\.json", fullmatch=True),
)
SINK_ENTRIES = st.fixed_dictionaries(
    {
        "path": PATHS,
        "size": st.integers(-1, 2**63 - 1),
        "isDir": st.booleans(),
        "modificationTime": st.integers(0, 2**45),
        "blockReplication": st.integers(0, 3),
        "blockSize": st.integers(0, 2**40),
        "action": st.sampled_from(["add", "delete"]),
    }
)
SOURCE_ENTRIES = st.fixed_dictionaries(
    {"path": PATHS, "timestamp": st.integers(0, 2**45), "batchId": st.integers(0, 2**40)}
)
FIELDS = {"sink": tuple(ENTRY), "source": ("path", "timestamp", "batchId")}


def read(root: Path, text: str | bytes, kind: str = "sink") -> SinkLog:
    folder = root / ("_spark_metadata" if kind == "sink" else "sources/0")
    return sink_log(make_log(folder, c9=text), policy=Policy())


def values_of(log: SinkLog) -> list[tuple[object, ...]]:
    times = {"modification_time", "timestamp"}
    table = log.entries
    columns = [table[name].cast("int64") if name in times else table[name] for name in table.column_names]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@pytest.mark.parametrize(
    ("kind", "entries"), [("sink", SINK_ENTRIES), ("source", SOURCE_ENTRIES)], ids=["sink", "source"]
)
@settings(max_examples=50)
@given(data=st.data())
def test_entries_are_what_json_says(
    kind: str,
    entries: st.SearchStrategy[dict[str, object]],
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    written = [{name: one[name] for name in FIELDS[kind]} for one in data.draw(st.lists(entries, max_size=4))]
    compact, ascii_only = data.draw(st.booleans()), data.draw(st.booleans())
    separators = (",", ":") if compact else None
    # Unknown fields are ignored.
    more = data.draw(st.sampled_from([{}, {"more": 1}]))
    lines = [json.dumps(one | more, separators=separators, ensure_ascii=ascii_only) for one in written]
    ending = data.draw(st.sampled_from(["", "\n"]))
    log = read(tmp_path_factory.getbasetemp() / kind, "\n".join(["v1", *lines]) + ending, kind)
    assert values_of(log) == [tuple(one.values()) for one in written]
    assert log.files["num_entries"].to_pylist() == [len(written)]
    assert (log.next_compaction_batch, log.pace.entries_per_batch) == (19, len(written) / 10)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'does not begin with a line "v1"'),
        (f"v1 \n{LINE}", 'does not begin with a line "v1"'),
        (f"v2\n{LINE}", 'does not begin with a line "v1"'),
        (f"v1\n{LINE}\n{LINE[:-20]}", "is damaged"),
        (f"v1\n{LINE}\n\n{LINE}", "is damaged (a line is blank)"),
        (f"v1\n{LINE} {LINE}", "is damaged"),
        (f"v1\n{LINE.replace('size', 'sise')}", "(an entry has no size)"),
        (f"v1\n{LINE.replace('78', 'null')}", "(an entry has no size)"),
        ("v1\n" + LINE.replace("78", '"78"'), "is damaged"),
        (f"v1\n{LINE.replace('false', 'maybe')}", "is damaged"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    refused(partial(read, tmp_path, text), CorruptLogError, "The log file 9.compact ", message)


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
    (tmp_path / "file").write_text("v1")
    (tmp_path / "folder").mkdir()
    make_log(tmp_path / "_spark_metadata")
    make_log(tmp_path / "commits", b0='v1\n{"nextBatchWatermarkMs":0}')
    refused(partial(sink_log, tmp_path / "nothing"), TableNotFoundError, "does not exist")
    for name, words in (
        ("file", "is a file"),
        ("folder", "holds no log of a file sink"),
        ("_spark_metadata", "has not committed a batch yet"),
        ("commits", "holds no log of a file sink"),
    ):
        refused(partial(sink_log, tmp_path / name), NotASinkLogError, words)
    log = partial(sink_log, make_log(tmp_path / "sources" / "0", b0="v1"))
    refused(partial(log, 5), InvalidArgumentError, "policy=5 is no policy")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("b0", "b2"), "misses batch 1: there is no compaction, and the latest batch is 2"),
        (("b3",), "misses batch 0:"),
        (("b8", "c9", f"b{10**12}"), "misses batch 10: the latest compaction is 9.compact"),
    ],
)
def test_a_gap_is_named(tmp_path: Path, files: tuple[str, ...], message: str) -> None:
    folder = make_log(tmp_path / "_spark_metadata", **dict.fromkeys(files, "v1"))
    refused(partial(sink_log, folder, policy=Policy()), CorruptLogError, message)


def test_files_that_no_reader_needs_may_be_anything(tmp_path: Path) -> None:
    folder = make_log(tmp_path / "_spark_metadata", b3="junk", c9="v1", b10=f"v1\n{LINE}")
    for name in (".0.crc", ".1.tmp", "junk", "1.tmp", "01"):
        (folder / name).write_text("v1")
    (folder / "11").mkdir()
    log = sink_log(folder, policy=Policy())
    assert log.files["needed"].to_pylist() == [False, True, True]
    assert (log.num_entries, log.size_bytes) == (1, len(f"v1v1\n{LINE}"))


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
    locked = tmp_path / "elsewhere" / "sources" / "0"
    locked.chmod(0)
    with folders.no_permission(locked), pytest.warns(UserWarning, match=f"{locked} can't be read"):
        assert len(find_sink_logs(tmp_path)) == 3
    locked.chmod(0o755)
    for root in (None, [tmp_path]):
        refused(partial(find_sink_logs, root), InvalidArgumentError, "is no path")  # type: ignore[arg-type]

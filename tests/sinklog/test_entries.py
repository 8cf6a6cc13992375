"""Entries: what is read is what Python's json reads, and what is damaged is named."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction_kit import SinkLog, sink_log
from compaction_kit.errors import CorruptLogError
from compaction_kit.sinklog import Policy
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
    names = FIELDS[kind]
    written = [{name: one[name] for name in names} for one in data.draw(st.lists(entries, max_size=4))]
    compact, ascii_only = data.draw(st.booleans()), data.draw(st.booleans())
    separators = (",", ":") if compact else None
    lines = [json.dumps(one, separators=separators, ensure_ascii=ascii_only) for one in written]
    ending = data.draw(st.sampled_from(["", "\n"]))
    log = read(tmp_path_factory.getbasetemp() / kind, "\n".join(["v1", *lines]) + ending, kind)
    assert values_of(log) == [tuple(one.values()) for one in written]
    assert log.files["num_entries"].to_pylist() == [len(written)]


def test_a_batch_without_a_file_and_fields_that_nobody_knows(tmp_path: Path) -> None:
    log = read(tmp_path / "a", "v1")
    assert (log.num_entries, log.files["num_entries"].to_pylist()) == (0, [0])
    assert values_of(read(tmp_path / "b", f'v1\n{LINE[:-1]},"more":1}}')) == [tuple(ENTRY.values())]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'does not begin with a line "v1"'),
        (f"v1 \n{LINE}", 'does not begin with a line "v1"'),
        (f"v2\n{LINE}", 'does not begin with a line "v1"'),
        (f"v1\n{LINE}\n{LINE[:-20]}", "is damaged"),
        (f"v1\n{LINE}\n\n{LINE}", r"is damaged \(a line is blank\)"),
        (f"v1\n{LINE} {LINE}", "is damaged"),
        (f"v1\n{LINE.replace('size', 'sise')}", r"\(an entry has no size\)"),
        (f"v1\n{LINE.replace('78', 'null')}", r"\(an entry has no size\)"),
        ("v1\n" + LINE.replace("78", '"78"'), "is damaged"),
        (f"v1\n{LINE.replace('false', 'maybe')}", "is damaged"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CorruptLogError, match=f"The log file 9.compact .*{message}"):
        read(tmp_path, text)

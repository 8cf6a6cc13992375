"""Damage logs, checkpoints, sink logs and manifests at random: the kit reads as Delta does, or says why not.

Bytes, lines, values, columns and names are damaged. `make test-long` tries thousands of cases.
"""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from compaction_kit.query import SPARK_ERRORS
from tests import checkpoints, deltas_view, handmade
from tests.bounded import Reader
from tests.chance import examples
from tests.interop.manifests import write_manifest
from tests.sinklog.streams import LINE, make_log

TABLES = ("commits", "classic checkpoint", "v2 checkpoint", "v2 checkpoint in JSON")
SEEDS = st.integers(0, 2**62)
SINK_LOGS = ("sink", "source")

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each of `TABLES` and `SINK_LOGS`."""
    folder = tmp_path_factory.mktemp("sound")
    for name in TABLES:
        _write_table(folder / name, name)
    batch, compaction = f"v1\n{LINE}", "\n".join(["v1", *[LINE] * 3])
    make_log(folder / "sink" / "_spark_metadata", b0=batch, b1=batch, c2=compaction, b3=batch)
    read = {"path": "file:///in/0", "timestamp": 1, "batchId": 0}
    batches = {f"b{number}": f"v1\n{json.dumps(read | {'batchId': number})}" for number in range(4)}
    make_log(folder / "source" / "sources" / "0", **batches)
    return folder


@pytest.fixture(scope="module")
def apart() -> Iterator[Reader]:
    """A reader in a process of its own, within limits of time and memory."""
    with closing(Reader()) as one:
        yield one


def _commits(features: list[str]) -> list[list[handmade.Action]]:
    told = {"timestamp": 1_700_000_000_000, "operation": "WRITE", "operationMetrics": {"numFiles": "1"}}
    told |= {"operationParameters": {"mode": "Append"}, "readVersion": 0, "isBlindAppend": True}
    info = {"commitInfo": told}
    in_commit = {"commitInfo": told | {"inCommitTimestamp": 1_700_000_000_500}}
    properties = {
        "delta.checkpointInterval": "10",
        "delta.deletedFileRetentionDuration": "interval 1 week",
        "delta.inCommitTimestampEnablementVersion": "3",
        "delta.logRetentionDuration": "interval 30 days",
        "delta.targetFileSize": "128m",
    }
    metadata = handmade.metadata({"id": "long", "p": "string"}, ["p"], properties)
    vector = handmade.vector("ab^-aqEH.-t@S}K{vb[*k^", 3, "u") | {"offset": 4}
    change = {"path": "_change_data/x.parquet", "partitionValues": {}, "size": 1, "dataChange": False}
    clustering = json.dumps({"clusteringColumns": []})
    domain = {"domain": "delta.clustering", "configuration": clustering, "removed": False}
    return [
        [handmade.protocol(features=features), metadata, _add("1/a"), _add("2/b")],
        [info, _add("1/c%20d"), handmade.remove("p=1/a.parquet")],
        [in_commit, _add("2/e", vector), {"txn": {"appId": "a", "version": 1}}, {"domainMetadata": domain}],
        [_add("2/f"), handmade.remove("p=2/b.parquet"), {"cdc": change}],
        [info, _add("2/g")],
    ]


def _add(name: str, vector: handmade.Action | None = None) -> handmade.Action:
    return handmade.add(f"p={name}.parquet", 5, {"p": name[0]}, vector=vector)


def _write_table(table: Path, name: str) -> None:
    commits = _commits(["v2Checkpoint", "deletionVectors"] if "v2" in name else ["deletionVectors"])
    handmade.write_log(table, *commits)
    state = checkpoints.replay(commits[:3])
    if name == "classic checkpoint":
        checkpoints.write_classic(table, 2, state, "both")
    elif "v2" in name:
        checkpoints.write_v2(table, 2, state, "text", "uuid.json" if "JSON" in name else "uuid.parquet", 2)
    for file in ("1/a", "1/c d", "2/b", "2/e", "2/f", "2/g"):
        path = table / f"p={file}.parquet"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"12345")
    write_manifest(table)


@contextmanager
def _damaged(folder: Path, seed: int, to: Path, inner: str = "") -> Iterator[str]:
    """Damage a copy, which is deleted afterwards; yield a description of the damage."""
    draw, done = random.Random(seed), "as far as it goes"
    shutil.copytree(folder, to)
    # After the first damage, a line may be nested too deeply for Python's own parser.
    with suppress(RecursionError):
        done = "; ".join(mutate(to / inner, draw) for _ in range(draw.choice([1, 1, 1, 2])))
    try:
        yield done
    finally:
        shutil.rmtree(to)


# With `--long` there are hundreds of examples; none is stored, because each is made again.
ANEW: dict[str, Any] = {"suppress_health_check": list(HealthCheck), "database": None}


@pytest.mark.parametrize(
    ("name", "inner"),
    [
        *((name, "_delta_log") for name in TABLES),
        (TABLES[0], ""),
        (TABLES[0], "_symlink_format_manifest"),
        *((name, "") for name in SINK_LOGS),
    ],
)
def test_what_is_damaged_is_read_as_delta_does_or_refused_in_one_sentence(
    name: str, inner: str, sound: Path, apart: Reader, spark: SparkSession, tmp_path: Path
) -> None:
    @settings(examples(1, divided_by=10), **ANEW)
    @given(seed=SEEDS)
    def check(seed: int) -> None:
        # Use a new path for each copy, because tables are cached by path.
        copy = tmp_path / str(seed)
        with _damaged(sound / name, seed, copy, inner) as done:
            wrong, live = apart.wrong("sink log" if name in SINK_LOGS else "table", copy)
            assert not wrong, f"{done}\n" + "\n".join(wrong)
            if live is None or inner != "_delta_log":
                return
            # Delta may refuse content that the kit doesn't need, such as a commit's commitInfo.
            with suppress(*SPARK_ERRORS):
                deltas = deltas_view.live_files(spark, copy)
                ours, theirs = (
                    {deltas_view.decoded(path): size for path, size in one} for one in (live, deltas)
                )
                assert ours == theirs, done

    check()


_DEEP = 3_000
_VALUES: list[Any] = [
    None, True, "", "x", "1", "\0", "\ud800", "ü \"{',\\", "%zz%2e%2e%2F..%2F", "/", "2024-01-01",
    0, -1, 1.5, 1e300, float("nan"), 2**31, 2**63 - 1, 2**63, 10**400, "9" * 5_000,
    "interval 99999999 days", [], [None], [[1]], {}, {"": None}, {"a": {"b": []}}, "y" * 70_000,
    # Values for JSON that is inside a string.
    '{"x":' + "[" * _DEEP + "]" * _DEEP + "}", f'{{"numRecords":{2**63}}}',
]  # fmt: skip
_LINES = [
    b"null", b"5", b"[]", b"{}", b'"x"', b"true", b"{", b"\0", b"\xff\xfe", b" ", b'{"add":null}',
    b'{"add":{}}', b'{"remove":{}}', b'{"add":5}', b'{"commitInfo":5}', b'{"a":1}{"b":2}',
    b'{"x":' + b"[" * _DEEP + b"]" * _DEEP + b"}",
    b'{"commitInfo":' + b'{"a":' * _DEEP + b"1" + b"}" * _DEEP + b"}",
    b'{"commitInfo":{"timestamp":"yesterday","operation":[1],"operationMetrics":[3],"operationParameters":"p"}}',
]  # fmt: skip
# Delta takes no compacted commits that end after the table's version, and trusts the content of others.
_NAMES = [
    f"{2**63 - 1:020d}.json", f"{10**15:020d}.checkpoint.parquet", "9" * 18,
    f"{10**12}.compact", "٠" * 20 + ".json", f"{1:020d}.{9:020d}.compacted.json", "a b\nc", "_sidecars",
]  # fmt: skip


def mutate(folder: Path, draw: random.Random) -> str:
    """Damage a random file in a folder; return a description of the damage."""
    file = draw.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    ways: list[Callable[[Path, random.Random], str]] = [_bytes, _rename]
    ways += [_parquet] * 4 if file.suffix == ".parquet" else [_lines, _value, _value, _value, _value]
    return f"{file.relative_to(folder)}: {draw.choice(ways)(file, draw)}"


def _bytes(file: Path, draw: random.Random) -> str:
    data = file.read_bytes()
    place = draw.randrange(len(data) + 1)
    before, after = data[:place], data[place:]
    junk = draw.choice([b"\0", b"\xff", b"\n", b"null", b'"', b"{", b"}", b"\r", b"\xc3"])
    damaged = {
        "cut": before,
        "flip": before + bytes(byte ^ 1 << draw.randrange(8) for byte in after[:1]) + after[1:],
        "hole": before + after[draw.randrange(1, 9) :],
        "insert": before + junk + after,
        "repeat": before + after[: draw.randrange(1, 99)] + after,
        "replace": draw.choice([b"", b"\n", b"null\n", b"v1", b"v1\nnull", b"PAR1", b"\0" * 99]),
    }
    kind = draw.choice(list(damaged))
    file.write_bytes(damaged[kind])
    return f"{kind} at {place}"


def _lines(file: Path, draw: random.Random) -> str:
    lines, line = file.read_bytes().split(b"\n"), draw.choice(_LINES)
    place = draw.randrange(len(lines))
    before, this, after = lines[:place], lines[place], lines[place + 1 :]
    damaged = {
        "insert": [*before, line, this, *after],
        "replace": [*before, line, *after],
        "delete": [*before, *after],
        "repeat": [*before, this, this, *after],
        "swap": [this, *before[1:], *lines[:1], *after] if before else lines,
        "join": [b"".join(lines)],
    }
    kind = draw.choice(list(damaged))
    file.write_bytes(b"\n".join(damaged[kind]))
    return f"{kind} line {place}: {line[:40]!r}"


def _value(file: Path, draw: random.Random) -> str:
    """Change a value in one line of JSON, or add, rename or remove a key."""
    lines = file.read_bytes().split(b"\n")
    actions = {number: value for number, line in enumerate(lines) if (value := _parsed(line))}
    if not actions:
        return _lines(file, draw)
    number, action = draw.choice(list(actions.items()))
    _change(action, draw)
    # Characters that aren't ASCII can be written in two ways.
    text = json.dumps(action, ensure_ascii=draw.random() < 0.5)
    lines[number] = text.encode("utf-8", "surrogatepass")
    file.write_bytes(b"\n".join(lines))
    return f"line {number} is {text[:300]}"


def _parsed(text: bytes | str) -> dict[str, Any]:
    with suppress(ValueError):
        if isinstance(value := json.loads(text), dict):
            return value
    return {}


def _change(fields: dict[str, Any], draw: random.Random) -> None:
    name, value = draw.choice(list(fields)), draw.choice(_VALUES)
    old = fields.pop(name)
    # Some strings are JSON themselves: stats and schemas.
    is_text = isinstance(old, str)
    inner = _parsed(old) if is_text else old
    if isinstance(inner, dict) and inner and draw.random() < 0.85:
        _change(inner, draw)
        fields[name] = json.dumps(inner) if is_text else inner
    else:
        other = draw.choice(["", "x", "\0", name.upper(), "path", "size"])
        ways = [{name: value}] * 3 + [{}, {other: old}, {name: [old]}, {name: {"type": old}}]
        fields |= draw.choice(ways)


def _parquet(file: Path, draw: random.Random) -> str:
    """Change the schema or the rows of a Parquet file."""
    try:
        table = pq.read_table(file)
    except (pa.ArrowException, OSError, ValueError):
        return _bytes(file, draw)
    place = draw.randrange(table.num_columns)
    name, column = table.column_names[place], table.column(place)
    damaged = {
        "twice": table.append_column(name, column),
        "text": table.set_column(place, name, pa.array(["x"] * len(table))),
        "null": table.set_column(place, name, pa.nulls(len(table), pa.string())),
        "drop": table.drop_columns([name]) if table.num_columns > 1 else table,
        "rename": table.set_column(place, draw.choice(["ADD", "", "remove", "metaData"]), column),
        "rows": pa.concat_tables([table, table]),
        "none": table.slice(0, 0),
    }
    if pa.types.is_struct(column.type):
        damaged["field"] = table.set_column(place, name, _other_field(column.combine_chunks(), draw))
    kind = draw.choice(list(damaged))
    pq.write_table(damaged[kind], file)
    return f"{kind} of {name}"


def _other_field(actions: pa.StructArray, draw: random.Random) -> pa.Array:
    """Return structs in which one field has another type, no type, or other values."""
    fields = list(actions.type)
    place = draw.randrange(len(fields))
    arrays = [actions.field(i) for i in range(len(fields))]
    others: list[Any] = ["x", -(2**63), 1.5, b"\xff", True, None, ["x"], {"a": 1}]
    arrays[place] = pa.array([draw.choice(others)] * len(actions))
    fields[place] = fields[place].with_type(arrays[place].type)
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=actions.is_null())


def _rename(file: Path, draw: random.Random) -> str:
    """Copy a file to another name, or rename it."""
    other = file.with_name(draw.choice(_NAMES))
    if not other.exists():
        shutil.copy(file, other)
        if draw.random() < 0.3:
            file.unlink()
    return f"also {other.name!r}"

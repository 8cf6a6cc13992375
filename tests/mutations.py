"""Damage of every kind for the files of a log: in their bytes, lines, values, columns, names and nature."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_DEEP = 3_000
_VALUES: list[Any] = [
    None, True, "", "x", "1", "\0", "\ud800", "ü \"{',\\", "%zz%2e%2e%2F..%2F", "/", "2024-01-01",
    0, -1, 1.5, 1e300, float("nan"), 2**31, 2**63 - 1, 2**63, 10**400, "9" * 5_000,
    "interval 99999999 days", [], [None], [[1]], {}, {"": None}, {"a": {"b": []}}, "y" * 70_000,
    # For what is JSON in a text.
    '{"x":' + "[" * _DEEP + "]" * _DEEP + "}", f'{{"numRecords":{2**63}}}',
]  # fmt: skip
_LINES = [
    b"null", b"5", b"[]", b"{}", b'"x"', b"true", b"{", b"\0", b"\xff\xfe", b" ", b'{"add":null}',
    b'{"add":{}}', b'{"remove":{}}', b'{"add":5}', b'{"commitInfo":5}', b'{"a":1}{"b":2}',
    b'{"x":' + b"[" * _DEEP + b"]" * _DEEP + b"}",
    b'{"commitInfo":' + b'{"a":' * _DEEP + b"1" + b"}" * _DEEP + b"}",
    b'{"commitInfo":{"timestamp":"yesterday","operation":[1],"operationMetrics":[3],"operationParameters":"p"}}',
]  # fmt: skip
_NAMES = [
    "9" * 20 + ".json", f"{2**63 - 1:020d}.json", f"{10**15:020d}.checkpoint.parquet", f"{10**15:020d}.json",
    "9" * 20, "9" * 18, f"{10**12}.compact", "٠" * 20 + ".json", os.fsdecode(b"caf\xe9.parquet"),
    os.fsdecode(b"0000000000000000000\xb2.json"), f"{1:020d}.{3:020d}.compacted.json", "a b\nc", "_sidecars",
    "manifest",
]  # fmt: skip


def mutate(folder: Path, draw: random.Random) -> str:
    """Damage one of the files in a folder, at random; what was done, in words."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    file = draw.choice(files)
    ways: list[Callable[[Path, random.Random], str]] = [_bytes, _nature, _rename]
    ways += [_parquet] * 4 if file.suffix == ".parquet" else [_lines, _value, _value, _value, _value]
    way = draw.choice(ways)
    return f"{file.relative_to(folder)}: {way(file, draw)}"


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
    """Put another value in one place of a line of JSON, or a key more, or one less."""
    lines = file.read_bytes().split(b"\n")
    parsed = [(number, _parsed(line)) for number, line in enumerate(lines)]
    known = [(number, value) for number, value in parsed if isinstance(value, dict) and value]
    if not known:
        return _lines(file, draw)
    number, action = draw.choice(known)
    text = _changed(action, draw)
    lines[number] = text.encode("utf-8", "surrogatepass")
    file.write_bytes(b"\n".join(lines))
    return f"line {number} is {text[:300]}"


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _changed(action: dict[str, Any], draw: random.Random) -> str:
    parent: Any = action
    key = draw.choice(list(parent))
    while isinstance(parent[key], dict) and parent[key] and draw.random() < 0.85:
        parent = parent[key]
        key = draw.choice(list(parent))
    value = draw.choice(_VALUES)
    kind = draw.choice(["set", "set", "set", "delete", "rename", "twice", "inner", "nest"])
    if kind == "set":
        parent[key] = value
    elif kind == "delete":
        del parent[key]
    elif kind == "rename":
        parent[draw.choice(["", "x", "\0", key.upper(), "path", "size"])] = parent.pop(key)
    elif kind == "twice":
        parent["\x01"] = value
        return json.dumps(action).replace(json.dumps("\x01"), json.dumps(key))
    elif kind == "inner":
        # Text that is JSON itself: stats and schemas.
        inner = _parsed(parent[key].encode()) if isinstance(parent[key], str) else None
        parent[key] = _changed(inner, draw) if isinstance(inner, dict) and inner else value
    elif kind == "nest":
        for _ in range(draw.choice([1, 50, 500])):
            parent[key] = draw.choice([[parent[key]], {"type": parent[key]}])
    # Each way of writing what isn't ASCII.
    return json.dumps(action, ensure_ascii=draw.random() < 0.5)


def _parquet(file: Path, draw: random.Random) -> str:
    """Another schema, or other rows."""
    try:
        table = pq.read_table(file)
    except (pa.ArrowException, OSError, ValueError):
        return _bytes(file, draw)
    place = draw.randrange(table.num_columns)
    name = table.column_names[place]
    kind = draw.choice(
        ["twice", "drop", "text", "number", "null", "rows", "none", "field", "field", "rename"]
    )
    if kind == "twice":
        table = table.append_column(table.schema.field(place), table.column(place))
    elif kind == "drop":
        table = table.drop_columns([name]) if table.num_columns > 1 else table.slice(0, 0)
    elif kind in ("text", "number", "null"):
        kinds = {"text": pa.array(["x"] * len(table)), "number": pa.array([1] * len(table))}
        table = table.set_column(place, name, kinds.get(kind, pa.nulls(len(table), pa.string())))
    elif kind == "rows":
        rows = [draw.randrange(len(table)) for _ in range(draw.randrange(9))] if len(table) else []
        table = pa.concat_tables([table, table.take(pa.array(rows, pa.int64()))])
    elif kind == "none":
        table = table.slice(0, 0)
    elif kind == "field" and pa.types.is_struct(table.schema.field(place).type):
        table = table.set_column(place, name, _other_field(table.column(place).combine_chunks(), draw))
    elif kind == "rename":
        other = draw.choice(["ADD", "x", "", "remove", "metaData"])
        table = table.rename_columns([other if i == place else n for i, n in enumerate(table.column_names)])
    pq.write_table(table, file)
    return f"{kind} of {name}"


def _other_field(actions: pa.StructArray, draw: random.Random) -> pa.Array:
    """A struct with a field of another type, without one, or with other values."""
    fields = list(actions.type)
    place = draw.randrange(len(fields))
    arrays = [actions.field(i) for i in range(len(fields))]
    others: list[Any] = ["x", -(2**63), 1.5, b"\xff", True, None, ["x"], {"a": 1}]
    arrays[place] = pa.array([draw.choice(others)] * len(actions))
    fields[place] = fields[place].with_type(arrays[place].type)
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=actions.is_null())


def _nature(file: Path, draw: random.Random) -> str:
    """Something else under the file's name."""
    become: dict[str, Callable[[], object]] = {
        "gone": lambda: None,
        "folder": lambda: (file / "inner").mkdir(parents=True),
        "pipe": lambda: os.mkfifo(file),
        "dangling": lambda: file.symlink_to(file.with_name("nowhere")),
        "loop": lambda: file.symlink_to(file),
        "link to a folder": lambda: file.symlink_to(file.parent),
        "empty": file.touch,
    }
    kind = draw.choice(list(become))
    file.unlink()
    become[kind]()
    return kind


def _rename(file: Path, draw: random.Random) -> str:
    """A copy under another name, or the file itself."""
    other = file.with_name(draw.choice(_NAMES))
    if other.exists():
        return "kept"
    other.write_bytes(file.read_bytes())
    if draw.random() < 0.3:
        file.unlink()
    return f"also {other.name!r}"

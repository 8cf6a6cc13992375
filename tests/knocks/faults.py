"""Tables that are odd, damaged or can't be written: a run keeps the rows, or fails with a sentence."""

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from compaction_kit import datasets, open_table
from compaction_kit.execute import Progress
from compaction_kit.execute.jobs import in_thread, session_confs
from tests import handmade
from tests.arrow.test_faults import disk_in, fill
from tests.execute.meanwhile import once
from tests.folders import data_files
from tests.knocks.oracle import STRATEGIES, Before, Case, Outcome, Rows, Wrong, judge, rows_of

_SECONDS = 60
_CODECS = ["none", "snappy", "gzip", "zstd", "brotli", "lz4"]


def _run(case: Case, table: Path, progress: Callable[[Progress], None] | None = None) -> Outcome:
    """Compact a table by a random strategy, and check that it has the rows that Spark could read before."""
    strategy = case.draw.choice([*STRATEGIES, "auto"])
    try:
        rows: Rows | None = in_thread(case.spark, lambda: rows_of(case.spark, table)).result(_SECONDS)
    except TimeoutError:
        case.spark.sparkContext.cancelAllJobs()
        return Outcome.LEFT_OUT
    except Exception:
        # The table can't be read: a run has to say so, and must change nothing.
        rows = None
    before = Before.of(table, rows)
    try:
        found: Any = open_table(table, case.spark).plan_compaction().run(strategy=strategy, progress=progress)
    except (Exception, KeyboardInterrupt) as error:
        found = error
    try:
        before.check(None if rows is None else rows_of(case.spark, table), rows)
        if rows is None and not isinstance(found, BaseException) and found.versions:
            raise Wrong("files that Spark can't read were rewritten")
        return judge(found, before)
    except Exception as error:
        error.add_note(f"by {strategy}: {found!r}")
        raise


def _rows(draw: random.Random, first: int, count: int) -> pa.Table:
    words = [draw.choice(["", "a", "ü" * 40, None]) for _ in range(count)]
    numbers = [draw.choice([0.0, -0.0, 1.5, float("nan"), None]) for _ in range(count)]
    ids = pa.array(range(first, first + count), pa.int64())
    return pa.table({"id": ids, "s": pa.array(words, pa.string()), "d": pa.array(numbers, pa.float64())})


def _options(draw: random.Random) -> dict[str, Any]:
    """Return random options for writing a file."""
    return {
        "compression": draw.choice(_CODECS),
        "data_page_version": draw.choice(["1.0", "2.0"]),
        "version": draw.choice(["1.0", "2.4", "2.6"]),
        "use_dictionary": draw.random() < 0.5,
        "write_statistics": draw.random() < 0.7,
        "write_page_checksum": draw.random() < 0.5,
        "row_group_size": draw.choice([7, 1_000]),
        "data_page_size": draw.choice([64, 1 << 20]),
    }


def _handmade(case: Case, options: Callable[[random.Random], dict[str, Any]]) -> Path:
    """Write a table of 2 to 6 files of one partition."""
    table, adds = case.folder / "table", []
    table.mkdir()
    for i in range(case.draw.randrange(2, 7)):
        name = f"f{i}.parquet"
        rows = _rows(case.draw, 100 * i, case.draw.choice([1, 30, 100]))
        pq.write_table(rows, table / name, **options(case.draw))
        adds.append(handmade.add(name, (table / name).stat().st_size, records=None))
    columns = {"id": "long", "s": "string", "d": "double"}
    return handmade.write_log(table, [handmade.protocol(), handmade.metadata(columns), *adds])


def codecs(case: Case) -> Outcome:
    """Use random codecs, pages and encodings; Spark writes some files, and can't read others."""
    table = _handmade(case, _options)
    if case.draw.random() < 0.3:
        codec = {"spark.sql.parquet.compression.codec": case.draw.choice(["lz4", "zstd"])}
        with session_confs(case.spark, codec):
            more = case.spark.range(1_000, 1_050, 1, 2).selectExpr("id", "CAST(id AS STRING) s", "id / 3 d")
            more.write.format("delta").mode("append").save(str(table))
    return _run(case, table)


def damage(case: Case) -> Outcome:
    """Damage a file in its footer, in its pages or as a whole."""
    draw = case.draw
    if draw.random() < 0.4:
        table = case.folder / "table"
        rows = case.spark.range(0, 300, 1, 3).selectExpr("id", "CONCAT('s', id % 9) s", "id / 7 d")
        rows.write.format("delta").save(str(table))
    else:
        readable = ["none", "snappy", "zstd"]
        table = _handmade(case, lambda draw: _options(draw) | {"compression": draw.choice(readable)})
    file = draw.choice(sorted(data_files(table)))
    data = bytearray(file.read_bytes())
    kind = draw.choice(["flip", "flip", "flip", "footer", "cut", "zeros", "gone", "empty", "length"])
    place = draw.randrange(4, len(data) - 8)
    if kind == "flip":
        for _ in range(draw.choice([1, 1, 5])):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == "footer":
        data[len(data) - 8 - draw.randrange(min(300, len(data) - 12))] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del data[place:]
    elif kind == "zeros":
        data[place : place + 16] = bytes(len(data[place : place + 16]))
    elif kind == "length":
        data[-8:-4] = draw.choice([b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff"])
    elif kind == "empty":
        data.clear()
    if draw.random() < 0.5:
        # Otherwise Hadoop's checksum shows the damage, if Spark wrote the file.
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    file.unlink() if kind == "gone" else file.write_bytes(data)
    return _run(case, table)


def bad_disk(case: Case) -> Outcome:
    """Fill the disk, or mount it read-only, before the run or during it. Needs root."""
    draw = case.draw
    with disk_in(case.folder) as disk:
        shape = {"partitions": draw.choice([0, 4]), "files": 6, "rows": 900, "commits": 2}
        table = Path(datasets.shaped_table(disk / "in" / "table", **shape))
        room = int(open_table(table).plan_compaction().bytes_added * draw.choice([0, 0.3, 0.7, 1.0, 1.3]))
        # This fails while a task has a file open there.
        close = ["mount", "-o", "remount,ro", str(disk)]
        ways: list[Callable[[], object]] = [
            lambda: fill(disk, min(room, shutil.disk_usage(disk).free)),
            lambda: subprocess.run(close, capture_output=True),
        ]
        act, step = draw.choice(ways), draw.choice(["", "Rewriting", "Comparing"])
        if step:
            return _run(case, table, once(step, act))
        act()
        return _run(case, table)


# The weight of each kind of fault.
WAYS = {codecs: 8, damage: 10, bad_disk: 6}


def play(case: Case) -> Outcome:
    (way,) = case.draw.choices(list(WAYS), list(WAYS.values()))
    try:
        return way(case)
    except Exception as error:
        error.add_note(way.__name__)
        raise

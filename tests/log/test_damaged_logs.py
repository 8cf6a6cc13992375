"""A log of Delta's own, damaged file by file: the kit answers rightly, or refuses and names the file."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import CompactionKitError
from compaction_kit.log.listing import log_file
from tests import deltas_view, folders

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

Answer = list[dict[str, Any]]


@pytest.fixture(scope="module", params=["classic", pytest.param("v2", marks=pytest.mark.nightly)])
def whole(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    lived: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """`lived` with a checkpoint, and commits after it: three of its own, or two appends."""
    table = folders.copy(lived, tmp_path_factory.mktemp(request.param) / "table")
    if request.param == "classic":
        deltas_view.checkpoint(spark, table, 1)
        return table
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')")
    deltas_view.checkpoint(spark, table)
    rows = spark.range(100, 103).selectExpr("id", "'1' p").coalesce(1)
    for _ in range(2):
        rows.write.format("delta").mode("append").save(str(table))
    return table


def answer(table: Path) -> Answer:
    return open_table(table).files().to_arrow().sort_by("path").to_pylist()


def damages(data: bytes, most: int) -> Iterator[tuple[str, bytes]]:
    """What a file of some bytes may become: damaged at a fixed stride, or at every byte of a small one."""
    for number, place in enumerate(range(0, len(data), -(-len(data) // most) or 1)):
        flipped = bytes([data[place] ^ 1 << place % 8])
        yield f"flipped at {place}", data[:place] + flipped + data[place + 1 :]
        if number % 3 == 0:
            yield f"cut at {place}", data[:place]
            yield f"without 3 bytes at {place}", data[:place] + data[place + 3 :]


def wrong(table: Path, name: Path, expected: Answer) -> str | None:
    """What is wrong with reading a table of which one file is damaged; None for the answer or a sentence."""
    try:
        found = answer(table)
    except CompactionKitError as error:
        message, version = str(error), log_file(name.name).version
        is_named = name.name in message or (version is not None and f"version {version} " in message)
        return None if is_named and "\n" not in message and message.endswith(".") else message
    except Exception as error:
        return repr(error)
    # As Delta, the kit doesn't compare checkpoints with their checksums: pages have their own.
    return None if found == expected or name.suffix == ".parquet" else "a wrong answer"


def test_damage_is_refused_or_harmless(whole: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    most = 5_000 if request.config.getoption("--long") else 1
    expected, numbers, found = answer(whole), itertools.count(), list[str]()
    table = folders.copy(whole, tmp_path / "copy")
    for path in sorted(path for path in (whole / "_delta_log").rglob("*") if path.is_file()):
        name, data = path.relative_to(whole), path.read_bytes()
        for damage, content in damages(data, most):
            # Under a new name the table is read again, whatever is in memory.
            table = table.rename(table.with_name(f"damaged{next(numbers)}"))
            (table / name).write_bytes(content)
            if (reason := wrong(table, name, expected)) is not None:
                found.append(f"{name} {damage}: {reason}")
            (table / name).write_bytes(data)
    assert found == []

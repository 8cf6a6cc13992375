"""A log of Delta's own, damaged file by file: the kit answers rightly, or refuses and names the file."""

import itertools
from collections.abc import Callable, Iterator
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
Damage = tuple[str, bytes | None]


@pytest.fixture(scope="module", params=["classic", "v2"])
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


@pytest.fixture(scope="module")
def places(request: pytest.FixtureRequest) -> Callable[[int], range]:
    """Where to damage a file of some bytes: at a fixed stride, or at every byte of a small one."""
    most = 5_000 if request.config.getoption("--long") else 3
    return lambda size: range(0, size, -(-size // most) or 1)


def answer(table: Path) -> Answer:
    files = open_table(table).files().to_arrow().to_pylist()
    return sorted(files, key=lambda file: file["path"])


def log_files(table: Path) -> list[Path]:
    return sorted(path for path in (table / "_delta_log").rglob("*") if path.is_file())


def cuts(data: bytes, places: range) -> Iterator[Damage]:
    for place in places:
        yield f"cut at {place}", data[:place]


def flips(data: bytes, places: range) -> Iterator[Damage]:
    for place in places:
        flipped = bytes([data[place] ^ 1 << place % 8])
        yield f"flipped at {place}", data[:place] + flipped + data[place + 1 :]


def holes(data: bytes, places: range) -> Iterator[Damage]:
    for place in places:
        yield f"without 3 bytes at {place}", data[:place] + data[place + 3 :]


class Damaged:
    """Damages one file of a table at a time, and puts it right again."""

    def __init__(self, table: Path):
        self.table = table
        self._numbers = itertools.count()

    def wrong(self, file: Path, damages: Iterator[Damage], expected: Answer | None) -> list[str]:
        """The damages of a file that led to another answer than the expected one, or to an unfit error."""
        name = file.relative_to(self.table)
        data = file.read_bytes()
        found = []
        for damage, content in damages:
            # Under a new name the table is read anew, whatever was read of it before.
            self.table = self.table.rename(self.table.with_name(f"damaged{next(self._numbers)}"))
            if content is None:
                (self.table / name).unlink()
            else:
                (self.table / name).write_bytes(content)
            if (told := self._told(name, expected)) is not None:
                found.append(f"{name} {damage}: {told}")
            (self.table / name).write_bytes(data)
        return found

    def _told(self, name: Path, expected: Answer | None) -> str | None:
        try:
            answered = answer(self.table)
        except CompactionKitError as error:
            message = str(error)
            version = log_file(name.name).version
            is_named = name.name in message or (version is not None and f"version {version} " in message)
            return None if is_named and "\n" not in message and message.endswith(".") else message
        except Exception as error:
            return repr(error)
        # As Delta, the kit doesn't compare checkpoints with their checksums: pages have their own.
        if expected is None or answered == expected or name.suffix == ".parquet":
            return None
        return "a wrong answer"


def test_damage_is_refused_or_does_not_matter(
    whole: Path, tmp_path: Path, places: Callable[[int], range]
) -> None:
    expected = answer(whole)
    damaged = Damaged(folders.copy(whole, tmp_path / "copy"))
    wrong = []
    names = [path.relative_to(whole) for path in log_files(whole)]
    for name in names:
        data = (whole / name).read_bytes()
        here = places(len(data))
        damages = itertools.chain(cuts(data, here[::3]), flips(data, here), holes(data, here[::3]))
        wrong += damaged.wrong(damaged.table / name, damages, expected)
    assert wrong == []

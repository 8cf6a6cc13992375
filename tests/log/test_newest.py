"""The latest version of a long log on a store, found without a listing: as it is found on a disk."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import CompactionKitError
from tests import handmade, stores

pytestmark = pytest.mark.spark

CHECKPOINT, LATEST = 600, 609


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of many versions, whose log was cleaned up: the number of its files is not looked at here."""
    table = tmp_path_factory.mktemp("long") / "t"
    for version in range(CHECKPOINT + 1):
        commit(table, version)
    deltalake.DeltaTable(table).create_checkpoint()
    for version in range(CHECKPOINT - 9):
        log_file(table, f"{version:020d}.json").unlink()
    for version in range(CHECKPOINT + 1, LATEST + 1):
        commit(table, version)
    return table


def commit(table: Path, version: int) -> None:
    first = [handmade.protocol(), handmade.metadata()] if version == 0 else []
    handmade.write_commit(table, version, [*first, handmade.add(f"{version}.parquet", 100 + version)])


@pytest.fixture
def on_s3(spark: SparkSession, s3: stores.Server, confs: Any) -> stores.Server:
    for key, value in s3.s3a.items():
        confs(key, value)
    return s3


def log_file(table: Path, name: str) -> Path:
    return table / "_delta_log" / name


def answer(name: Path | str) -> Any:
    try:
        table = open_table(name)
        files = table.files().to_arrow().select(["path", "size_bytes"])
        return table.version, sorted(map(str, files.to_pylist()))
    except CompactionKitError as error:
        return type(error), str(error).replace(str(name), "")


def listings(server: stores.Server) -> int:
    """How often the whole log was listed, or begun to be."""
    asked = [one.query for one in server.requests if "list-type=2" in one.query]
    return sum("_delta_log%2F&" in f"{query}&" and "continuation" not in query for query in asked)


def test_a_look_lists_nothing_and_a_second_one_asks_for_what_is_new(
    long: Path, on_s3: stores.Server, tmp_path: Path
) -> None:
    table = Path(shutil.copytree(long, tmp_path / "t"))
    uri = on_s3.upload(table, tmp_path.name)
    on_s3.requests.clear()
    opened = open_table(uri)
    assert (opened.version, opened.files().num_files) == (LATEST, LATEST + 1)
    assert listings(on_s3) == 0
    fetched = Counter(Path(one.path).name for one in on_s3.requests if one.method == "GET")
    assert fetched[f"{LATEST:020d}.json"] == 1
    assert f"{CHECKPOINT - 1:020d}.json" not in fetched

    for version in range(LATEST + 1, LATEST + 21):
        commit(table, version)
        name = f"kit/{tmp_path.name}/_delta_log/{version:020d}.json"
        with on_s3.filesystem().open_output_stream(name) as out:
            out.write(log_file(table, f"{version:020d}.json").read_bytes())
    on_s3.requests.clear()
    assert (opened.files().num_files, opened.version) == (LATEST + 21, LATEST + 20)
    assert listings(on_s3) == 0
    read = [one for one in on_s3.requests if one.method == "GET" and one.path.endswith(".json")]
    assert len(read) == 20
    # What needs all of the log lists it.
    assert opened.log.commits()["version"].to_pylist()[-1] == LATEST + 20
    assert listings(on_s3) > 0


def lose(number: int) -> Callable[[Path], None]:
    return lambda table: log_file(table, f"{number:020d}.json").unlink()


def hint(**fields: Any) -> Callable[[Path], None]:
    def write(table: Path) -> None:
        log_file(table, "_last_checkpoint").write_text(json.dumps({"version": CHECKPOINT} | fields))

    return write


def grow(table: Path) -> None:
    # More than are looked for by their names.
    for version in range(LATEST + 1, CHECKPOINT + 220):
        commit(table, version)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a commit before the checkpoint is gone": lose(CHECKPOINT - 5),
    "a commit is missing": lose(LATEST - 4),
    "the newest is gone": lose(LATEST),
    "the first after the checkpoint is missing": lose(CHECKPOINT + 1),
    "no hint": lambda table: log_file(table, "_last_checkpoint").unlink(),
    "an old hint": hint(version=10),
    "a hint of a checkpoint that isn't there": hint(version=CHECKPOINT + 3),
    "a hint of parts": hint(parts=2),
    "a hint of a V2 checkpoint": hint(v2Checkpoint={"path": "x.checkpoint.parquet"}),
    "a hint that is no JSON": lambda table: log_file(table, "_last_checkpoint").write_text("{"),
    "a hint that is a list": lambda table: log_file(table, "_last_checkpoint").write_text("[600]"),
    "an odd hint": hint(version="x", v2Checkpoint=7),
    "many commits after the checkpoint": grow,
}


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_the_version_of_a_copy_on_a_disk(
    long: Path, on_s3: stores.Server, tmp_path: Path, change: str
) -> None:
    table = Path(shutil.copytree(long, tmp_path / "t"))
    CHANGES[change](table)
    uri = on_s3.upload(table, tmp_path.name)
    assert answer(uri) == answer(table)


def test_a_table_made_anew_is_not_taken_for_the_one_before(
    long: Path, on_s3: stores.Server, tmp_path: Path
) -> None:
    uri = on_s3.upload(long, tmp_path.name)
    assert open_table(uri).version == LATEST
    folder = f"kit/{tmp_path.name}"
    on_s3.filesystem().delete_dir(folder)
    new = tmp_path / "new"
    commit(new, 0)
    on_s3.upload(new, tmp_path.name)
    assert answer(uri) == answer(new) != answer(long)

"""The store of a folder on an object store."""

import pickle
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from pyarrow.fs import S3FileSystem
from pyspark.sql import SparkSession

from compaction_kit import errors, open_table
from compaction_kit.storage import Store, open_store
from tests import stores
from tests.chance import nightly
from tests.conftest import SetConf
from tests.refusals import refused

SLOW = (503, "SlowDown")


@pytest.fixture
def store(on_s3: stores.Server, tmp_path: Path) -> Store:
    (tmp_path / "t" / "p=1").mkdir(parents=True)
    (tmp_path / "t" / "_delta_log").mkdir()
    (tmp_path / "t" / "p=1" / "a b%20.parquet").write_bytes(b"0123456789")
    for version in range(16):
        (tmp_path / "t" / "_delta_log" / f"{version:020d}.json").write_bytes(b"x" * version)
    (tmp_path / "t" / "_delta_log" / "_last_checkpoint").write_bytes(b"1")
    root = on_s3.upload(tmp_path / "t", tmp_path.name)
    on_s3.requests.clear()
    return open_store(root)


def test_a_place_is_relative_to_the_folder_or_a_uri(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compaction_kit.storage.store.RANGE_BYTES", 4)
    place = "p=1/a b%20.parquet"
    for name in (place, store.uri(place)):
        assert store.read(name) == b"0123456789"
        assert (store.read(name, 2, 5), store.read(name, 8)) == (b"23456", b"89")
        assert store.open(name).read_at(2, 4) == b"45"
        assert store.is_file(name)
    assert list(store.at_once(store.read, [place, place])) == [b"0123456789"] * 2
    assert store.relative(store.uri(place)) == place
    assert store.relative(store.uri(place).replace("s3a:", "s3:")) == place
    assert store.relative(f"{store.root}-other/a") is None
    assert (store.status("p=1/b"), store.is_folder("p=1"), store.status("p=2")) == (None, True, None)
    with pytest.raises(FileNotFoundError):
        store.read("p=1/b")


def test_settings_are_read_as_hadoop_reads_them(on_s3: stores.Server, confs: SetConf) -> None:
    # Another bucket, because the file system of the tests' own bucket is already open.
    filesystem = S3FileSystem(**on_s3.options, allow_bucket_creation=True)
    filesystem.create_dir("spelled/t")
    confs("fs.s3a.path.style.access", " True ")
    confs("fs.s3a.bucket.spelled.connection.ssl.enabled", "FALSE")
    confs("fs.s3a.endpoint", f" {on_s3.address} ")
    with filesystem.open_output_stream("spelled/t/a") as file:
        file.write(b"0123456789")
    assert open_store("s3a://spelled/t").read("a") == b"0123456789"


def test_a_folder_is_listed_by_one_request_and_so_is_all_of_it(store: Store, on_s3: stores.Server) -> None:
    kinds = {entry.name: (entry.is_file, entry.is_folder, entry.size_bytes) for entry in store.entries("p=1")}
    assert kinds == {"a b%20.parquet": (True, False, 10)}
    assert len(on_s3.requests) == 1
    walked = {place: {entry.name for entry in entries} for place, entries in store.walk()}
    listed = store.listed()
    on_s3.requests.clear()
    assert {place: {e.name for e in entries} for place, entries in listed.walk()} == walked
    assert listed.status("p=1/a b%20.parquet")
    assert not listed.status("p=1/b")
    assert on_s3.requests == []
    with pytest.raises(errors.TableNotFoundError, match="nowhere does not exist"):
        store.entries("nowhere")
    assert list(store.walk("nowhere")) == []


def test_a_store_is_asked_for_many_files_at_once(store: Store, on_s3: stores.Server) -> None:
    busy, most, lock = 0, 0, threading.Lock()

    def count(method: str, path: str) -> None:
        nonlocal busy, most
        with lock:
            busy, most = busy + 1, max(most, busy + 1)
        time.sleep(0.02)
        with lock:
            busy -= 1

    places = [f"_delta_log/{entry.name}" for entry in store.entries("_delta_log")]
    numbers = [place for place in places if place.endswith(".json")]
    on_s3.fault = count
    assert [len(data) for data in store.at_once(store.read, numbers)] == list(range(16))
    assert most > 4
    assert list(store.lines(numbers[3])) == [b"xxx"]


def test_the_versions_of_a_table_are_read_from_one_listing_of_its_log(
    on_s3: stores.Server, shaped: Path
) -> None:
    table = open_table(on_s3.upload(shaped, "versions"))
    on_s3.requests.clear()
    assert table.versions()["readable"].to_pylist() == ["yes"] * 5
    assert len([one for one in on_s3.requests if "_delta_log" in one.query]) == 1


def test_a_pickled_store_has_no_credentials(store: Store) -> None:
    assert stores.SECRET_KEY.encode() in pickle.dumps(store.filesystem)
    assert stores.SECRET_KEY not in repr(store.filesystem)
    assert stores.SECRET_KEY.encode() not in pickle.dumps(store)
    assert stores.SECRET_KEY not in repr(store)
    assert pickle.loads(pickle.dumps(store)) == store


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ((403, "AccessDenied"), errors.StorageError, "(access denied): check the credentials"),
        ((403, "ExpiredToken"), errors.StorageError, "(ExpiredToken): check the credentials"),
        ((404, "NoSuchBucket"), errors.TableNotFoundError, "check the spelling"),
        ((400, "InvalidRequest"), errors.StorageError, "check the endpoint and network"),
        # Retried for about 10 s first.
        *nightly((SLOW, errors.StorageError, "check the endpoint and network")),
    ],
)
def test_what_a_store_refuses_is_one_sentence(
    store: Store, on_s3: stores.Server, fault: tuple[int, str], kind: type[Exception], words: str
) -> None:
    on_s3.fault = lambda method, path: fault
    refused(partial(open_table, store.root), kind, words, store.root)


@pytest.mark.parametrize(
    ("root", "cause"),
    [
        ("foo://host/table", "No FileSystem for scheme"),
        ("hdfs:///table", "Incomplete HDFS URI, no host"),
        ("http://127.0.0.1/table", "UnsupportedOperationException"),
    ],
)
def test_what_hadoop_refuses_is_one_sentence(spark: SparkSession, root: str, cause: str) -> None:
    refused(partial(open_table, root), errors.StorageError, root, cause)


# Each retry waits twice as long as the one before.
@pytest.mark.parametrize("passing", [["dropped"], *nightly([SLOW, "dropped"] * 2)])
def test_temporary_failures_are_retried(
    store: Store, on_s3: stores.Server, passing: list[tuple[int, str] | str]
) -> None:
    faults = iter(passing)
    on_s3.fault = lambda method, path: next(faults, None)
    assert store.read("p=1/a b%20.parquet") == b"0123456789"
    assert next(faults, None) is None

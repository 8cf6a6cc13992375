"""Tables on Google's store, by its emulator; Azure has no emulator to install with pip."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

import compaction_kit as ck
from compaction_kit.storage import open_store
from compaction_kit.storage.store import path_of


@pytest.fixture(scope="module")
def google() -> Iterator[fs.GcsFileSystem]:
    """An emulator with a bucket, named in the environment; a process, because pyarrow holds Python's lock."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("gcp-storage-emulator")), "start", "--in-memory"]
    command += [f"--port={port}", "--host=127.0.0.1", "--default-bucket=kit"]
    emulator = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://127.0.0.1:{port}")
        # The client retries until the process listens.
        yield fs.GcsFileSystem(anonymous=True, scheme="http", endpoint_override=f"127.0.0.1:{port}")
    emulator.kill()
    emulator.wait()


@pytest.mark.works("Google's store", "read")
def test_a_table_on_googles_store_is_found_read_and_planned_as_on_a_disk(
    google: fs.GcsFileSystem, shaped: Path
) -> None:
    for path in shaped.rglob("*"):
        if path.is_file():
            with google.open_output_stream(f"kit/lake/t/{path.relative_to(shaped)}") as out:
                out.write(path.read_bytes())
    assert ck.find_tables("gs://kit") == ["gs://kit/lake/t"]
    here, there = ck.open_table(shaped), ck.open_table("gs://kit/lake/t")
    assert there.plan_compaction().bins == here.plan_compaction().bins
    assert there.versions()["version"] == here.versions()["version"]
    walked = [
        {place: {entry.name for entry in entries} for place, entries in open_store(root).walk()}
        for root in (shaped, "gs://kit/lake/t")
    ]
    assert walked[0] == walked[1]
    with pytest.raises(ck.errors.TableNotFoundError, match="gs://kit/nothing"):
        ck.open_table("gs://kit/nothing")


def test_azure_is_opened_by_its_uri() -> None:
    store = open_store("abfss://kit@lake.dfs.core.windows.net/t")
    assert isinstance(store.filesystem, fs.AzureFileSystem)
    assert path_of(store.place("a")) == "kit/t/a"
    with pytest.raises(ck.errors.StorageError, match="abfss://kit/t can't be reached"):
        ck.open_table("abfss://kit/t")

"""Tables on Google's store, by its emulator, and what opens Azure's, for which there is none to install."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

import compaction_kit as ck
from compaction_kit.storage import open_store
from compaction_kit.storage.options import arrow_files

ADDRESS = "kit@lake.dfs.core.windows.net"


@pytest.fixture(scope="module")
def google() -> Iterator[fs.GcsFileSystem]:
    """An emulator, which the environment names, with a bucket; a process, as pyarrow holds Python's lock."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(Path(sys.executable).parent / "gcp-storage-emulator"),
        "start",
        "--in-memory",
        f"--port={port}",
    ]
    emulator = subprocess.Popen(
        [*command, "--host=127.0.0.1", "--default-bucket=kit"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://127.0.0.1:{port}")
        # Its client tries until the process listens.
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
    folders = {place: {entry.name for entry in entries} for place, entries in open_store(shaped).walk()}
    assert {
        place: {entry.name for entry in entries} for place, entries in open_store("gs://kit/lake/t").walk()
    } == folders
    with pytest.raises(ck.errors.TableNotFoundError, match="gs://kit/nothing"):
        ck.open_table("gs://kit/nothing")


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ("AccountName=lake;AccountKey=a2V5==", {"account_key": "a2V5=="}),
        ("AccountName=lake;SharedAccessSignature=sv=1&sig=2", {"sas_token": "sv=1&sig=2"}),
        ("AccountName=other;AccountKey=a2V5==", {}),
    ],
)
def test_azures_account_is_opened_with_the_environments_connection_string(
    given: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", given)
    services = {
        "blob_storage_authority": ".blob.core.windows.net",
        "dfs_storage_authority": ".dfs.core.windows.net",
    }
    kind, found = arrow_files("abfss", ADDRESS, None) or ("", ())
    assert (kind, dict(found)) == ("AzureFileSystem", {"account_name": "lake"} | services | options)


def test_an_emulator_of_azure_is_one_place_for_both_services(monkeypatch: pytest.MonkeyPatch) -> None:
    given = "AccountName=lake;AccountKey=a2V5==;BlobEndpoint=http://127.0.0.1:10000/lake;"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", given)
    found = dict((arrow_files("abfss", ADDRESS, None) or ("", ()))[1])
    assert {found[f"{name}_storage_authority"] for name in ("blob", "dfs")} == {"127.0.0.1:10000"}
    assert {found[f"{name}_storage_scheme"] for name in ("blob", "dfs")} == {"http"}


def test_azures_other_clouds_have_services_of_their_own() -> None:
    found = dict((arrow_files("abfss", "kit@lake.dfs.core.chinacloudapi.cn", None) or ("", ()))[1])
    assert found["blob_storage_authority"] == ".blob.core.chinacloudapi.cn"


@pytest.mark.spark
def test_hadoops_settings_have_the_keys_of_azure(confs: Any, spark: SparkSession) -> None:
    host = ADDRESS.partition("@")[2]
    tenant = "https://login.microsoftonline.com/11-22/oauth2/token"
    confs(f"fs.azure.account.oauth2.client.id.{host}", "me")
    confs(f"fs.azure.account.oauth2.client.secret.{host}", "hidden")
    confs("fs.azure.account.oauth2.client.endpoint", tenant)
    found = dict((arrow_files("abfss", ADDRESS, spark) or ("", ()))[1])
    assert {"client_id": "me", "client_secret": "hidden", "tenant_id": "11-22"}.items() <= found.items()
    confs(f"fs.azure.account.key.{host}", "a2V5==")
    found = dict((arrow_files("abfss", ADDRESS, spark) or ("", ()))[1])
    assert found["account_key"] == "a2V5=="


def test_a_name_without_azures_account_is_refused() -> None:
    with pytest.raises(ck.errors.StorageError, match="kit names no account"):
        ck.open_table("abfss://kit/t")

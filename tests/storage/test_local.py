"""The store of a folder on a local disk."""

import os
from pathlib import Path

import pytest

from compaction_kit.errors import TableNotFoundError, UnsupportedTableError
from compaction_kit.folder import look_through
from compaction_kit.storage import LocalStore, is_folder, local_path, local_store, open_store
from tests.refusals import refused


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A store of a folder, whose parent folder also holds another file."""
    (tmp_path / "table" / "p=1").mkdir(parents=True)
    (tmp_path / "table" / "p=1" / "a.parquet").write_bytes(b"0123456789")
    (tmp_path / "elsewhere").write_bytes(b"abc")
    return local_store(tmp_path / "table", "A test")


def test_a_place_is_relative_to_the_folder_or_absolute(store: LocalStore, tmp_path: Path) -> None:
    assert store.read("p=1/a.parquet") == b"0123456789"
    assert (store.read("p=1/a.parquet", 2, 3), store.read("p=1/a.parquet", 8)) == (b"234", b"89")
    assert store.open("p=1/a.parquet").read_at(2, 4) == b"45"
    assert list(store.lines(f"{tmp_path}/elsewhere")) == [b"abc"]


def test_links_are_neither_files_nor_folders_and_names_are_utf8(store: LocalStore, tmp_path: Path) -> None:
    table = tmp_path / "table"
    for name, target in {"link": "../elsewhere", "round": ".", "broken": "nowhere"}.items():
        (table / name).symlink_to(target)
    (table / os.fsdecode(b"caf\xe9")).touch()
    kinds = {entry.name: (entry.is_file, entry.is_folder) for entry in store.entries()}
    others = dict.fromkeys(("link", "round", "broken"), (False, False))
    assert kinds == {"p=1": (False, True)} | others
    for name in others:
        assert (store.is_file(name), store.is_folder(name), bool(store.status(name))) == (False, False, True)
    found = []
    for place, entries in store.walk():
        entries[:] = [entry for entry in entries if entry.name != "_delta_log"]
        found.append(place)
    assert found == ["", "p=1"]
    refused(lambda: look_through(store, []), UnsupportedTableError, "a symbolic link, which is not")
    store.delete("link")
    assert (tmp_path / "elsewhere").is_file()
    assert (store.status("a\0b"), store.is_file("x" * 300)) == (None, False)
    refused(lambda: store.entries("nowhere"), TableNotFoundError, "nowhere can't be read")
    assert list(store.walk("nowhere")) == []


def test_new_files_replace_nothing_and_moves_leave_no_empty_folder(store: LocalStore, tmp_path: Path) -> None:
    store.create("new", b"1")
    with pytest.raises(FileExistsError):
        store.create("new", b"2")
    with pytest.raises(FileExistsError):
        store.make_folder("p=1", exist_ok=False)
    store.move("p=1/a.parquet", f"{tmp_path}/aside/p=1/a.parquet")
    assert [entry.name for entry in store.entries()] == ["new"]
    back = local_store(tmp_path / "aside", "A test")
    back.move("p=1/a.parquet", store.place("p=1/a.parquet"))
    back.delete_empty()
    assert not back.is_folder()
    store.delete("p=1")
    store.delete("new")
    store.delete("nothing")
    assert (store.entries(), (tmp_path / "elsewhere").is_file()) == ([], True)


def test_a_folder_is_named_by_a_path_or_a_uri_and_may_be_reached_by_a_link(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "by link").symlink_to(tmp_path / "table")
    monkeypatch.setenv("HOME", str(tmp_path))
    uris = f"file:{tmp_path}/by%20link", f"file://{tmp_path}/table/"
    for name in (str(tmp_path / "by link"), "~/by link", *uris):
        assert open_store(name) == store
        assert is_folder(name)
    encoded = tmp_path / "p%41"
    encoded.mkdir()
    (tmp_path / "pA").mkdir()
    assert open_store(open_store(encoded).uri()) == open_store(encoded)
    assert open_store(f"file:{tmp_path}/p%2541") == open_store(encoded)
    remote, odd = "s3://bucket/table", str(tmp_path / os.fsdecode(b"caf\xe9"))
    refused(lambda: local_store(remote, "A test"), UnsupportedTableError, "on local disks alone", remote)
    refused(lambda: local_path(remote), UnsupportedTableError, f"{remote} isn't on a local disk")
    refused(lambda: open_store(odd), TableNotFoundError, "its name is not UTF-8")
    assert not is_folder(str(tmp_path / "elsewhere"))

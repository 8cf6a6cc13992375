"""The store of a folder on a local disk."""

import os
from pathlib import Path

import pytest

from compaction_kit.errors import TableNotFoundError, UnsupportedTableError
from compaction_kit.storage import LocalStore, is_folder, local_path, local_store, open_store


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A store below a folder that also holds something else."""
    (tmp_path / "table" / "p=1").mkdir(parents=True)
    (tmp_path / "table" / "p=1" / "a.parquet").write_bytes(b"0123456789")
    (tmp_path / "elsewhere").write_bytes(b"abc")
    return local_store(tmp_path / "table", "A test")


def test_a_place_is_relative_to_the_folder_or_absolute(store: LocalStore, tmp_path: Path) -> None:
    assert store.read("p=1/a.parquet") == b"0123456789"
    assert store.read("p=1/a.parquet", 2, 3) == b"234"
    assert store.read("p=1/a.parquet", 8) == b"89"
    assert store.read(f"{tmp_path}/elsewhere") == b"abc"
    assert store.open("p=1/a.parquet").read_at(2, 4) == b"45"
    assert list(store.lines(f"{tmp_path}/elsewhere")) == [b"abc"]


def test_a_folder_is_listed_with_what_its_links_lead_to(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "table" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "table" / "broken").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "table" / "pipe")
    found = {entry.name: entry for entry in store.entries()}
    kinds = {name: (e.is_file, e.is_folder, e.is_link, e.is_gone) for name, e in found.items()}
    assert kinds == {
        "p=1": (False, True, False, False),
        "link": (True, False, True, False),
        "broken": (False, False, True, True),
        "pipe": (False, False, False, False),
    }
    assert found["link"].size_bytes == 3
    elsewhere = store.status(f"{tmp_path}/elsewhere")
    assert elsewhere is not None
    assert found["link"].identity == elsewhere.identity
    assert store.real("link") == f"{tmp_path}/elsewhere"
    assert (store.is_file("broken"), store.is_taken("broken"), store.status("broken")) == (False, True, None)


def test_names_that_no_file_can_have_are_of_none(store: LocalStore) -> None:
    for name in ("a\0b", "x" * 300):
        assert (store.status(name), store.is_file(name)) == (None, False)
    with pytest.raises(TableNotFoundError, match="nowhere can't be read"):
        store.entries("nowhere")
    assert list(store.walk("nowhere")) == []


def test_a_walk_goes_into_no_link_and_into_nothing_that_was_taken_from_its_list(
    store: LocalStore, tmp_path: Path
) -> None:
    (tmp_path / "table" / "round").symlink_to(tmp_path / "table")
    (tmp_path / "table" / "_delta_log").mkdir()
    found = []
    for place, entries in store.walk():
        entries[:] = [entry for entry in entries if entry.name != "_delta_log"]
        found.append((place, sorted(entry.name for entry in entries)))
    assert found == [("", ["p=1", "round"]), ("p=1", ["a.parquet"])]


def test_what_is_new_replaces_nothing(store: LocalStore) -> None:
    store.create("new", b"1")
    with pytest.raises(FileExistsError):
        store.create("new", b"2")
    assert store.read("new") == b"1"
    with pytest.raises(FileExistsError):
        store.make_folder("p=1", exist_ok=False)


def test_a_move_leaves_no_empty_folder_below_the_root_and_deletes_none_above(
    store: LocalStore, tmp_path: Path
) -> None:
    store.move("p=1/a.parquet", f"{tmp_path}/aside/p=1/a.parquet")
    assert (tmp_path / "aside" / "p=1" / "a.parquet").is_file()
    assert store.entries() == []
    assert store.is_folder()
    back = local_store(tmp_path / "aside", "A test")
    back.move("p=1/a.parquet", store.place("p=1/a.parquet"))
    assert store.is_file("p=1/a.parquet")
    back.delete_empty()
    assert not back.is_folder()
    assert (tmp_path / "elsewhere").is_file()


def test_deleting_takes_a_link_and_not_what_it_leads_to(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "table" / "link").symlink_to(tmp_path / "table" / "p=1")
    store.delete("link")
    store.delete("nothing")
    assert store.is_file("p=1/a.parquet")
    store.delete("p=1")
    assert store.entries() == []


def test_a_folder_is_named_by_a_path_or_a_uri(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "by link").symlink_to(tmp_path / "table")
    for name in (str(tmp_path / "by link"), f"file:{tmp_path}/by%20link", f"file://{tmp_path}/table/"):
        assert open_store(name) == store
        assert is_folder(name)
    with pytest.raises(UnsupportedTableError, match="works on local disks alone, and s3://bucket/table is"):
        local_store("s3://bucket/table", "A test")
    with pytest.raises(UnsupportedTableError, match="s3://bucket/table isn't on a local disk"):
        local_path("s3://bucket/table")
    assert not is_folder(str(tmp_path / "elsewhere"))

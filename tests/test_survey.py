from pathlib import Path

from compaction_kit import find_tables


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name / "_delta_log").mkdir(parents=True)


def test_tables_are_found_at_any_depth_and_none_in_a_table(tmp_path: Path) -> None:
    make(tmp_path, "b", "a/x", "a/y/z", "b/inside")
    (tmp_path / "c").mkdir()
    assert find_tables(tmp_path) == [str(tmp_path / name) for name in ("a/x", "a/y/z", "b")]


def test_a_table_is_itself_what_is_found(tmp_path: Path) -> None:
    make(tmp_path, "t")
    assert find_tables(str(tmp_path / "t")) == [str(tmp_path / "t")]


def test_hidden_folders_and_those_too_deep_are_passed_over(tmp_path: Path) -> None:
    make(tmp_path, ".trash/t", "_old/t", "1/2/3/4/5/t", "1/2/3/4/5/6/t")
    assert find_tables(tmp_path) == [str(tmp_path / "1/2/3/4/5/t")]


def test_a_folder_that_does_not_exist_holds_no_tables(tmp_path: Path) -> None:
    assert find_tables(tmp_path / "nothing") == []

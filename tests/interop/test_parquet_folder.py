"""The names of partition folders, there and back."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_kit.interop.parquet_folder import partition_folders, partition_values
from compaction_kit.log.paths import folder_of

names = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), min_size=1)


@given(st.dictionaries(names, st.none() | names.filter(lambda v: not v.startswith("__HIVE")), max_size=3))
def test_a_folder_tells_the_values_that_it_was_made_of(values: dict[str, str | None]) -> None:
    assert partition_values(folder_of(tuple(values), tuple(values.values()))) == values


def test_empty_text_and_null_have_the_same_folder() -> None:
    assert folder_of(["p"], [""]) == folder_of(["p"], [None]) == "p=__HIVE_DEFAULT_PARTITION__"


@pytest.mark.parametrize("folder", ["sub", "a=1/sub", "a=", "=1"])
def test_another_folder_tells_nothing(folder: str) -> None:
    assert partition_values(folder) is None


def test_the_tables_own_folder_has_no_values() -> None:
    assert partition_values("") == {}
    assert partition_folders(pa.table({"x": [1, 2]}).select([])).to_pylist() == ["", ""]

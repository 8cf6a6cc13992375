from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_kit import open_table
from compaction_kit.plan.predict import SizeModel, count_rows
from tests import handmade
from tests.chance import examples
from tests.plan.test_compaction import files_of


def test_overhead_and_bytes_per_row_are_estimated_from_files_on_a_line(tmp_path: Path) -> None:
    half = handmade.add("half", 500 + 8 * 100, records=100, vector=handmade.vector("0rJua", 50))
    adds = [handmade.add(f"f{n}", 500 + 8 * n, records=n) for n in (10, 20, 40)]
    files = files_of(tmp_path, half, *adds)
    assert np.subtract(*count_rows(files)).tolist() == [50, 10, 20, 40]
    model = SizeModel.of(files)
    assert abs(model.overhead - 500) <= 1
    assert np.abs(model.weights - [400, 80, 160, 320]).max() <= 1
    assert "8.0 bytes per row, estimated from 4 of the table's files" in model.basis
    output = model.output_bytes(np.array([1, 2, 3]), np.array([0, 0, 0]), 1)
    assert abs(output[0] - (500 + 80 + 160 + 320)) <= 3
    adds = [handmade.add(f"f{i}", 1_000 + 4 * i, records=1_000 * i) for i in range(1, 5)]
    assert "and 0.004 bytes per row" in SizeModel.of(files_of(tmp_path / "equal rows", *adds)).basis


@pytest.mark.parametrize("records", [None, 10, 0])
def test_without_different_rows_the_bytes_are_the_estimate(tmp_path: Path, records: int | None) -> None:
    adds = [handmade.add(f"f{i}", 100 * i, records=records) for i in range(4)]
    model = SizeModel.of(files_of(tmp_path, *adds))
    assert (model.overhead, model.weights.tolist()) == (0, [0, 100, 200, 300])
    assert "at most" in model.basis


def test_a_small_file_is_predicted_without_what_its_inputs_note_of_their_schema(tmp_path: Path) -> None:
    rows = pa.table({f"column_{i}": range(100) for i in range(50)}).replace_schema_metadata(
        {"of": "Spark" * 999}
    )
    adds = [handmade.write_data(tmp_path, name, rows) for name in "ab"]
    plan = open_table(handmade.write_log(tmp_path, adds)).plan_compaction()
    both = handmade.write_data(tmp_path, "both", pa.concat_tables([rows, rows]), store_schema=False)
    assert plan.bytes_added == pytest.approx(both["add"]["size"], rel=0.02)


@pytest.mark.long
@examples(40)
@given(st.lists(st.tuples(st.integers(1, 10_000), st.integers(0, 500) | st.none()), min_size=1, max_size=20))
def test_a_file_is_never_reckoned_to_hold_more_than_it_has(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[int, int | None]]
) -> None:
    adds = [handmade.add(f"f{i}", size, records=records) for i, (size, records) in enumerate(sizes)]
    files = files_of(tmp_path_factory.mktemp("estimate"), *adds)
    model = SizeModel.of(files)
    assert np.all((model.weights >= 0) & (model.weights <= files.sizes))
    assert 0 <= model.overhead <= files.sizes.max()

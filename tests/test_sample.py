from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from compaction_kit import open_table
from compaction_kit.plan.estimate import SizeModel, sampled_model
from compaction_kit.storage import open_store
from tests import handmade


def test_a_trial_comes_near_what_one_file_of_all_rows_weighs(tmp_path: Path) -> None:
    """Few values, many times: a dictionary that each small file has and the large one has but once."""
    rng = np.random.default_rng(0)
    words = [f"a rather long word, the {i}th of its kind" for i in range(200)]
    parts = [pa.table({"id": rng.integers(0, 1_000, 300), "w": rng.choice(words, 300)}) for _ in range(100)]
    adds = [handmade.write_data(tmp_path, f"f{i}.parquet", part) for i, part in enumerate(parts)]
    handmade.write_log(tmp_path, [handmade.metadata({"id": "long", "w": "string"}), *adds])
    (one,) = (handmade.write_data(tmp_path, "one.parquet", pa.concat_tables(parts)),)
    files = open_table(tmp_path).files()
    model = sampled_model(open_store(str(tmp_path)), files)
    everything = np.arange(100)
    (predicted,) = model.output_bytes(everything, np.zeros(100, np.int64), 1)
    assert predicted == pytest.approx(one["add"]["size"], rel=0.1)
    assert "by writing 64 files to memory" in model.basis
    # The line through the files themselves sees nothing of that.
    (by_line,) = SizeModel.of(files).output_bytes(everything, np.zeros(100, np.int64), 1)
    assert by_line > 2 * predicted


def test_without_the_files_the_line_has_to_do(tmp_path: Path) -> None:
    adds = [handmade.add(f"f{n}", 500 + 8 * n, records=n) for n in (10, 20, 40)]
    files = open_table(handmade.write_log(tmp_path, adds)).files()
    assert sampled_model(open_store(str(tmp_path)), files).basis == SizeModel.of(files).basis

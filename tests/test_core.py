"""What the core loads: reading a log and planning need neither PySpark nor figures, and start no Java."""

from pathlib import Path

import pytest

import compaction_kit as ck
from compaction_kit.datasets import shaped_table
from tests.processes import run_python

CORE = """
import sys
import compaction_kit.log, compaction_kit.files, compaction_kit.plan
print({"pyspark", "py4j", "matplotlib", "pandas", "ipywidgets"} & sys.modules.keys())
import compaction_kit as ck
plan = ck.open_table(sys.argv[1]).plan_compaction()
print(plan.num_bins, plan.num_files_removed, len(plan.explain()) > 0)
from pyspark import SparkContext
print(SparkContext._gateway)
"""


def test_the_core_loads_neither_pyspark_nor_figures_and_plans_without_a_java(tmp_path: Path) -> None:
    table = shaped_table(tmp_path / "t", partitions=2, files=3, rows=10)
    done = run_python("-c", CORE, str(table), JAVA_HOME="/nowhere")
    assert done.stdout.splitlines() == ["set()", "2 6 True", "None"]


def test_every_name_of_the_package_is_there_when_it_is_asked_for() -> None:
    assert all(getattr(ck, name) is not None for name in ck.__all__)
    assert set(ck.__all__) <= set(dir(ck))
    assert callable(ck.survey)
    assert ck.errors.CompactionKitError.__name__ == "CompactionKitError"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = ck.nothing

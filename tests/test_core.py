"""What the core loads: reading a log and planning need neither PySpark nor figures, and start no Java."""

from pathlib import Path

import pytest

import compaction_kit as ck
from compaction_kit.datasets import shaped_table
from tests import folders
from tests.processes import run_python

LOCAL = """
import sys
import compaction_kit.log, compaction_kit.files, compaction_kit.plan
assert not {"pyspark", "py4j", "matplotlib", "pandas", "ipywidgets"} & sys.modules.keys()
import compaction_kit as ck
from compaction_kit.__main__ import main
table, folder = sys.argv[1:]
opened = ck.open_table(table)
plan = opened.plan_compaction()
opened.files().stats(), opened.history(), opened.versions(), opened.storage(), opened.log_expiry()
opened.plan_vacuum(), opened.plan_restore(1), opened.diff(1, 2), plan.bins, plan.files, plan.explain()
opened.at(timestamp=opened.history()["timestamp"][0].as_py())
assert (plan.num_bins, plan.num_files_removed, len(ck.survey(folder)), main(["audit", table])) == (2, 6, 1, 0)
assert "matplotlib" not in sys.modules
plan.plot()
try:
    ck.survey("sales.orders")
except ck.errors.TableNotFoundError as error:
    assert "no Spark session is running" in str(error)
from pyspark import SparkContext
assert SparkContext._gateway is None and "ipywidgets" not in sys.modules
from compaction_kit import widgets, workbench
assert widgets is ck.widgets and workbench is ck.workbench and callable(widgets.vacuum)
"""


@pytest.mark.works("local disk", "read")
def test_local_tables_need_no_java_and_the_core_neither_pyspark_nor_figures(tmp_path: Path) -> None:
    table = shaped_table(tmp_path / "t", partitions=2, files=3, rows=10)
    before = folders.listing(tmp_path)
    done = run_python("-W", "ignore", "-c", LOCAL, str(table), str(tmp_path), JAVA_HOME="/nowhere")
    assert done.stdout == f"0 rewrites in {table}.\n"
    assert folders.listing(tmp_path) == before


def test_every_name_of_the_package_is_there_when_it_is_asked_for() -> None:
    assert all(getattr(ck, name) is not None for name in ck.__all__)
    assert set(ck.__all__) <= set(dir(ck))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = ck.nothing

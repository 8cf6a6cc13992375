"""Opening tables, and the errors for bad input. tests/log has the damaged logs, tests/execute the runs."""

import pickle
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from pyspark.sql import SparkSession

from compaction_kit import datasets, errors, find_sink_logs, find_tables, open_table, survey
from compaction_kit.report import write_report
from compaction_kit.storage import Entry, LocalStore
from compaction_kit.table import Table
from compaction_kit.text import GIB, MIB
from tests import folders, handmade
from tests.conftest import SetConf
from tests.refusals import refused


@pytest.mark.parametrize("form", [str, Path, lambda path: f"file:{path}", lambda path: f"file://{path}"])
def test_a_table_opens_by_its_path_in_any_form(shaped: Path, form: Callable[[Path], str | Path]) -> None:
    table = open_table(form(shaped))
    assert (table.path, table.version) == (shaped.resolve(), 4)
    assert repr(table) == f'Table("{form(shaped)}", version 4)'


def test_the_repr_of_a_deleted_table_has_its_name(shaped: Path, tmp_path: Path) -> None:
    table = open_table(folders.copy(shaped, tmp_path / "table"))
    rmtree(table.path)
    assert repr(table) == f'Table("{table.name}", which can\'t be read)'


def test_what_is_no_table_is_refused_and_left_alone(tmp_path: Path) -> None:
    data, empty, nothing = tmp_path / "data.parquet", tmp_path / "empty", tmp_path / "no such table"
    data.write_text("x")
    (empty / "_delta_log").mkdir(parents=True)
    before = folders.listing(tmp_path)
    for path, kind, words in (
        *((path, errors.NotADeltaTableError, "no _delta_log folder") for path in (tmp_path, data)),
        (empty, errors.NotADeltaTableError, "_delta_log folder is empty"),
        (nothing, errors.TableNotFoundError, "does not exist; check the spell"),
    ):
        refused(partial(open_table, path), kind, str(path), words)
    assert issubclass(errors.TableNotFoundError, FileNotFoundError)
    assert folders.listing(tmp_path) == before
    table = open_table(handmade.write_log(data.with_name("t"), [handmade.add("a")]))
    table.path.rename(tmp_path / "elsewhere")
    refused(table.files, errors.TableNotFoundError, str(tmp_path / "t"), "does not exist")


def test_a_folder_that_may_not_be_read_is_not_called_no_table(tmp_path: Path) -> None:
    table = handmade.write_log(tmp_path / "locked", [handmade.add("a")])
    table.chmod(0)
    with folders.no_permission(table):
        refused(partial(open_table, table), errors.StorageError, f"{table}/_delta_log can't be reached")
        for look in (find_tables, find_sink_logs, survey):
            refused(partial(look, table), errors.TableNotFoundError, "can't be read (Permission denied)")
    table.chmod(0o755)


def test_a_name_with_line_breaks_stays_in_its_sentence(tmp_path: Path) -> None:
    name = "two\nlines"
    data = [handmade.metadata({name: "long"}), handmade.add("a"), handmade.add("b")]
    table = open_table(handmade.write_log(tmp_path / name, data))
    for text in (repr(table), table.plan_compaction(order=name).explain(), survey(tmp_path).summary()):
        assert "two lines" in text
        assert name not in text
    with pytest.raises(errors.TableNotFoundError, match="no two lines"):
        open_table(tmp_path / f"no {name}")


def test_a_plan_with_a_session_can_be_copied(spark: SparkSession, shaped: Path) -> None:
    plan = open_table(shaped, spark).plan_compaction()
    assert deepcopy(plan).explain() == plan.explain()
    refused(partial(pickle.dumps, plan), errors.InvalidArgumentError, "A plan can't be pickled: make a plan")


def test_a_minimum_above_the_maximum_is_warned_of(spark: SparkSession, shaped: Path, confs: SetConf) -> None:
    table = open_table(shaped, spark)
    most = 3 * int(table.files().sizes.mean())
    plan = table.plan_compaction(min_file_size="2 MiB", max_file_size=most)
    assert plan.thresholds.min_file_size == 2 * MIB > plan.thresholds.max_file_size == most
    (warning,) = plan.warnings
    assert "minimum file size of 2 MiB is above the target file size" in warning
    for shown in (plan.explain(), plan._repr_html_(), *plan.to_dict()["warnings"]):
        assert warning.partition(",")[0] in shown
    for setting, value in (("minFileSize", 2 * MIB), ("maxFileSize", most), ("maxDeletedRowsRatio", 0.5)):
        confs(f"spark.databricks.delta.optimize.{setting}", str(value))
    by_session = table.plan_compaction()
    assert (by_session.warnings, by_session.num_bins) == (plan.warnings, plan.num_bins)
    assert by_session.thresholds == replace(plan.thresholds, max_deleted_rows_ratio=0.5)
    assert table.plan_compaction(min_file_size=10, max_file_size=10).warnings == ()


def test_setting_one_threshold_adjusts_the_other(shaped: Path) -> None:
    expected: dict[tuple[str | None, str | None], tuple[int, int]] = {
        (None, None): (GIB, GIB),
        ("1 MiB", "2 MiB"): (MIB, 2 * MIB),
        ("1 MiB", "1 MiB"): (MIB, MIB),
        (None, "1 MiB"): (MIB, MIB),
        (None, "3 GiB"): (GIB, 3 * GIB),
        ("1 MiB", None): (MIB, GIB),
        ("3 GiB", None): (3 * GIB, 3 * GIB),
    }
    found = {sizes: open_table(shaped).thresholds(*sizes) for sizes in expected}
    assert {sizes: (one.min_file_size, one.max_file_size) for sizes, one in found.items()} == expected


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda table: table.plan_compaction(zorder_by=5), 'zorder_by="5" is not a data column'),
        (lambda table: table.plan_compaction(zorder_by=[5], budget=1), "zorder_by=[5] sorts whole"),
        (lambda table: table.plan_compaction().run(5), 'strategy="5" is unknown'),
        (lambda table: table.forecast(days="3"), 'days="3" is not a whole number'),
        (lambda table: table.auto_compaction(since="9"), 'since="9" is not a whole number'),
        (lambda table: table.auto_compaction(since=-1), "since=-1 is out of range"),
        (partial(datasets.shaped_table, seed="a"), 'seed="a" is not a whole number'),  # type: ignore[arg-type]
        (lambda table: table.log.actions("1"), 'version="1" is not a whole number'),
        (lambda table: table.forecast(days=10**30), "out of range: give a whole number from 1 to 3,650"),
        (lambda table: table.plan_compaction(where=5), "is not a predicate"),
        (lambda table: table.plan_compaction().cost.price("x"), 'per_gib="x" is not a number'),
        (lambda table: open_table(table.path, table), "is no Spark session: give one"),
        (lambda _: write_report(None, "words"), "path=None can't be written"),  # type: ignore[arg-type]
        (lambda table: write_report("a.html", table.plan_compaction()), "title=CompactionPlan("),
        (lambda _: write_report("a\0b", "words"), r"path='a\x00b' can't be written"),
        (partial(datasets.shaped_table, skew="1"), 'skew="1" is not a number'),  # type: ignore[arg-type]
    ],
)
def test_a_value_of_another_type_is_refused_by_name(shaped: Path, call: Any, says: str) -> None:
    refused(partial(call, open_table(shaped)), errors.InvalidArgumentError, says)


def test_each_call_lists_the_log_once(shaped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = open_table(shaped).history()["timestamp"][1].as_py()
    listed, entries = list[str](), LocalStore.entries

    def counted(store: LocalStore, place: str = "") -> list[Entry]:
        listed.append(place)
        return entries(store, place)

    monkeypatch.setattr(LocalStore, "entries", counted)
    calls: dict[str, Callable[[Table], object]] = {
        "diff": lambda table: table.diff(1, 3),
        "restore": lambda table: table.plan_restore(1),
        "forecast": lambda table: table.forecast(),
        "expiry": lambda table: table.log_expiry(),
        "times": lambda table: table.log.commit_times(),
        "last": lambda table: table.log.last_operation("WRITE"),
        "at": lambda table: table.log.version_at(moment),
        "survey": lambda table: survey([table.path]),
    }
    for name, call in calls.items():
        table = open_table(shaped)
        listed.clear()
        call(table)
        # A survey opens the table too.
        assert listed.count("_delta_log") == (2 if name == "survey" else 1), name

"""Orders of packing: that of OPTIMIZE among files of equal size, and those of other plans; budgets."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.plan.order import spark_hash, state_order
from compaction_kit.plan.packing import within_budget
from tests import handmade
from tests.chance import examples
from tests.plan.test_compaction import members

Span = tuple[int, int]


def ranged(
    name: str, size: int, bounds: Span | None, records: int = 10, partition: str = "a", time: int = 0
) -> handmade.Action:
    """Return an add action with bounds of column c, written `time` seconds after the first one."""
    low_and_high = bounds and ({"c": bounds[0]}, {"c": bounds[1]})
    action = handmade.add(name, size, {"p": partition}, records, bounds=low_and_high)
    action["add"]["modificationTime"] += time * 1_000
    return action


def table_of(folder: Path, *adds: handmade.Action) -> Path:
    metadata = handmade.metadata({"c": "long", "p": "string"}, ["p"])
    return handmade.write_log(folder, [metadata, *adds])


def test_files_are_packed_in_the_order_that_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    files = [("x", 30, (5, 9), 3), ("y", 10, (7, 8), 1), ("z", 20, None, 2), ("w", 40, (0, 9), 0)]
    adds = [ranged(name, size, bounds, time=time) for name, size, bounds, time in files]
    table = open_table(table_of(tmp_path, *adds), spark)
    # Files without bounds come last.
    for order, expected in (("size", "yzxw"), ("ingest", "wyzx"), ("c", "wxyz")):
        plan = table.plan_compaction(min_file_size=100, max_file_size=1_000, order=order)
        assert members(plan) == [list(expected)]
    bin_ = "1 bin with a predicted output of at most 1.0 KiB"
    assert f"{bin_} in 1 partition, in order of c." in plan.explain()
    assert str(plan.plot_bins().get_label()) == f"4 files in {bin_}"
    found = table.plan_compaction().compare()
    assert found.column == "c"
    label = "A narrow range of c opens the fewest files in 3 of 4 layouts"
    assert str(found.plot().get_label()).startswith(label)
    with pytest.raises(InvalidArgumentError, match="nothing to compare, because no file matches"):
        table.plan_compaction(where="p = 'b'").compare()
    with pytest.raises(InvalidArgumentError, match="A purge keeps the layout"):
        table.plan_purge().compare()
    assert "alone" not in table.plan_compaction(min_file_size=25, zorder_by="c").explain()


SPANS = st.tuples(st.integers(0, 50), st.integers(0, 20)).map(lambda drawn: (drawn[0], sum(drawn)))


@pytest.mark.long
@examples(40)
@given(
    st.lists(st.tuples(st.integers(1, 200), SPANS | st.none(), st.sampled_from("ab")), max_size=15),
    st.sampled_from(["c", "ingest", "size"]),
)
def test_layouts_are_counted_as_by_hand(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[int, Span | None, str]], order: str
) -> None:
    points = [value for _, span, _ in files for value in span or ()]
    if not points:
        return
    adds = [
        ranged(f"f{i}", size, span, partition=partition, time=i)
        for i, (size, span, partition) in enumerate(files)
    ]
    table = open_table(table_of(tmp_path_factory.mktemp("compare"), *adds))
    plan = table.plan_compaction(min_file_size=101, max_file_size=300, order=order)
    of_file = {f"f{i}": span for i, (_, span, _) in enumerate(files)}
    rewritten = [[of_file.pop(name) for name in bin_] for bin_ in members(plan)]
    after = list(of_file.values())
    for spans in rewritten:
        known = [span for span in spans if span is not None]
        lows, highs = zip(*known, strict=True) if len(known) == len(spans) else ((), ())
        after.append((min(lows), max(highs)) if lows else None)
    touched = [sum(span is None or span[0] <= point <= span[1] for span in after) for point in points]
    layout = {"size": "OPTIMIZE", "ingest": "by ingestion", "c": "by c"}[order]
    (found,) = [row for row in plan.compare("c").layouts.to_pylist() if row["layout"] == layout]
    assert found["num_files"] == len(after)
    assert found["point_files"] == pytest.approx(sum(touched) / len(touched))
    assert found["bytes_rewritten"] == plan.bytes_removed


@pytest.mark.parametrize("order", ["c", "ingest"])
def test_bins_of_another_order_are_filled_by_the_size_of_what_comes_out(tmp_path: Path, order: str) -> None:
    """So a second plan finds nothing left to do."""

    def sized(name: str, rows: int, low: int) -> handmade.Action:
        return ranged(name, 100 + 8 * rows, (low, low), rows, time=low)

    files = [sized(f"f{i}", rows, i) for i, rows in enumerate((30, 65, 60, 37, 5))]
    options: dict[str, Any] = {"order": order, "min_file_size": 900, "max_file_size": 100 + 8 * 100}
    plan = open_table(table_of(tmp_path / "first", *files)).plan_compaction(**options)
    assert members(plan) == [["f0", "f1"], ["f2", "f3"]]
    assert plan.bins["bytes_added"].to_pylist() == pytest.approx([100 + 8 * 95, 100 + 8 * 97], abs=4)
    second = open_table(table_of(tmp_path / "second", sized("b0", 95, 0), sized("b1", 97, 2), files[4]))
    assert second.plan_compaction(**options).is_empty


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(1, 100)), max_size=20),
    st.integers(1, 500),
)
def test_a_budget_is_kept_and_spent_on_the_best(bins: list[tuple[int, int]], budget: int) -> None:
    worth, costs = (np.array([one[i] for one in bins], np.int64) for i in (0, 1))
    chosen = within_budget(worth, costs, budget).tolist()
    spent = sum(bins[i][1] for i in chosen)
    assert spent <= budget
    rates = [bins[i][0] / bins[i][1] for i in chosen]
    assert rates == sorted(rates, reverse=True)
    for i in set(range(len(bins))) - set(chosen):
        better = [j for j in chosen if bins[j][0] / bins[j][1] >= bins[i][0] / bins[i][1]]
        assert sum(bins[j][1] for j in better) + bins[i][1] > budget


def test_a_budget_takes_the_bins_that_gain_the_most_for_a_byte(tmp_path: Path) -> None:
    many = [ranged(f"m{i}", 10, (i, i), partition="many") for i in range(20)]
    few = [ranged(f"f{i}", 90, (i, i), partition="few") for i in range(2)]
    table = open_table(table_of(tmp_path, *many, *few))
    plan = table.plan_compaction(max_file_size="1 KiB", budget=250)
    assert plan.bins["partition.p"].to_pylist() == ["many"]
    assert "1 bin isn't rewritten, because the budget is 250 B; bins that gain the most" in plan.explain()
    left = [row for row in plan.steps.to_pylist() if row["partition.p"] == "few"]
    assert [(row["outcome"], row["bin_id"]) for row in left] == [("over budget", None)] * 2
    assert "alone" not in plan.explain()
    assert table.plan_compaction(max_file_size="1 KiB", budget=380).num_bins == 2
    # If OPTIMIZE runs the plan, Delta decides which of equal-sized files share a bin.
    ties = [ranged(f"t{i}", size, (i, i)) for i, size in enumerate((30, 30, 40, 40, 45))]
    table = open_table(table_of(tmp_path / "ties", *ties))
    for options, is_certain in (({}, False), ({"budget": 90}, True), ({"order": "c"}, True)):
        assert table.plan_compaction(max_file_size=100, **options).exact.members == is_certain


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"order": "d"}, 'order="d" is neither "size" nor "ingest" nor a data column of the table: .* c'),
        ({"order": "p"}, 'order="p" is neither'),
        ({"budget": 0}, "budget=0 is out of range"),
        ({"budget": float("nan")}, "budget=nan is not a size"),
        ({"batch_size": "-1 MiB"}, 'batch_size="-1 MiB" is not a size'),
        ({"max_deleted_rows_ratio": 1.5}, "max_deleted_rows_ratio=1.5 is out of range"),
        ({"max_deleted_rows_ratio": float("nan")}, "max_deleted_rows_ratio=nan is out of range"),
        ({"zorder_by": "p"}, 'zorder_by="p" is not a data column'),
        ({"zorder_by": np.array(["c", "d"])}, 'zorder_by="d" is not a data column'),
        ({"zorder_by": ["c"], "order": "c"}, "leave out order and budget"),
        ({"zorder_by": "c", "budget": 10}, "leave out order and budget"),
    ],
    ids=str,
)
def test_what_can_not_be_used_is_refused_by_name(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    table = open_table(table_of(tmp_path, ranged("a", 60, (0, 1))))
    with pytest.raises(InvalidArgumentError, match=told) as caught:
        table.plan_compaction(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("column", [None, "c"])
def test_without_bounds_there_is_nothing_to_compare(tmp_path: Path, column: str | None) -> None:
    plan = open_table(table_of(tmp_path, ranged("a", 60, None), ranged("b", 60, None))).plan_compaction()
    which = 'column="c": it has no bounds' if column else "column=None: no column has bounds"
    with pytest.raises(InvalidArgumentError, match=f"^{which} in the stats of the files"):
        plan.compare(column)


@pytest.mark.parametrize("options", [{"order": "c"}, {"budget": "1 MiB"}, {"order": "ingest"}], ids=str)
def test_only_arrow_runs_plans_with_an_order_or_a_budget(tmp_path: Path, options: dict[str, Any]) -> None:
    table = open_table(table_of(tmp_path, ranged("a", 60, (0, 1)), ranged("b", 50, (0, 1))))
    plan = table.plan_compaction(max_file_size="1 KiB", **options)
    for strategy in ("optimize", "rewrite"):
        with pytest.raises(InvalidArgumentError, match='run it with strategy="arrow"'):
            plan.run(strategy=strategy)


def test_columns_with_the_names_of_orders_are_in_backticks(tmp_path: Path) -> None:
    names = ("size", "ingest")
    bounds = [dict.fromkeys(names, -i) for i in range(3)]
    adds = [handmade.add(f"f{i}", 10 + i, bounds=(one, one)) for i, one in enumerate(bounds)]
    metadata = handmade.metadata(dict.fromkeys(names, "long"))
    table = open_table(handmade.write_log(tmp_path, [metadata, *adds]))
    assert members(table.plan_compaction(order="size")) == [["f0", "f1", "f2"]]
    plan = table.plan_compaction(order="`size`")
    assert members(plan) == [["f2", "f1", "f0"]]
    layouts = plan.compare().layouts["layout"].to_pylist()
    assert layouts == ["now", "OPTIMIZE", "by ingestion", "by `size`"]


@pytest.mark.spark
def test_the_hash_is_sparks(spark: SparkSession) -> None:
    rng = np.random.default_rng(0)
    texts = ["", "ü€", "日本語", *(rng.bytes(int(rng.integers(0, 60))).decode("latin1") for _ in range(300))]
    rows = spark.createDataFrame([(text,) for text in texts], "text string").selectExpr("hash(text)")
    assert spark_hash(pa.array(texts)).tolist() == [row[0] for row in rows.collect()]


@given(st.lists(st.text(max_size=8), unique=True, max_size=40), st.integers(1, 7))
def test_files_go_by_their_partition_and_then_by_path(paths: list[str], num_partitions: int) -> None:
    array = pa.array(paths, pa.string())
    partition = spark_hash(array).astype(int) % num_partitions
    expected = sorted(range(len(paths)), key=lambda i: (partition[i], paths[i].encode()))
    assert np.argsort(state_order(array, num_partitions)).tolist() == expected

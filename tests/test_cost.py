"""Predicted costs of runs: ranges and rates. `benchmarks/cost.py` measures whether the times are right."""

import json
import math
import os
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from compaction_kit import cost, open_table
from compaction_kit.cost import Cost, cost_of, predict_cost
from compaction_kit.datasets import shaped_table
from compaction_kit.execute import CompactionResult
from compaction_kit.session import cache_folder
from compaction_kit.text import GIB, MIB
from tests import folders, handmade
from tests.conftest import SetConf
from tests.stores import Server


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file with the times of earlier runs, which doesn't exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", folders.own_cache(tmp_path / "cache"))
    return cache_folder() / "rates.json"


def middle(ends: tuple[float, float]) -> float:
    return math.sqrt(ends[0] * ends[1])


def keep(file: Path, costs: Sequence[Cost], seconds: Sequence[float]) -> None:
    runs = [[*one.amounts[0], took] for one, took in zip(costs, seconds, strict=True)]
    file.write_text(json.dumps({costs[0].strategy: runs}))


def test_a_first_prediction_is_wide_and_runs_narrow_it(kept: Path) -> None:
    first = predict_cost(1_000, 20 * MIB, 3, 18 * MIB)
    # Text that isn't JSON is ignored, and so are numbers that no run can have.
    run = [*first.amounts[0], 1.0]
    runs = 7, [1, 2], ["x"] * 10, [*run[:-1], 0], [-1.0, *run[1:]]
    for damaged in ("{", "5", *(json.dumps({"arrow": [one]}) for one in runs)):
        kept.write_text(damaged)
        assert predict_cost(1_000, 20 * MIB, 3, 18 * MIB).seconds == first.seconds
    took, widths = 4 * first.seconds[1], [first.seconds[1] / first.seconds[0]]
    assert 3 < widths[0] < 5
    for count in (1, 2, 12):
        keep(kept, [first] * count, [took] * count)
        now = predict_cost(1_000, 20 * MIB, 3, 18 * MIB)
        widths.append(now.seconds[1] / now.seconds[0])
        assert now.seconds[0] < took < now.seconds[1]
        assert ("the last run on" if count == 1 else f"the last {count} runs on") in now.basis
    assert widths == sorted(widths, reverse=True)
    assert 1.5 < widths[-1] < 2
    # Other strategies have learned nothing, nor has the proof.
    assert now.proof_seconds == first.proof_seconds
    assert "built-in rates" in predict_cost(1_000, 20 * MIB, 3, 18 * MIB, "optimize").basis


@pytest.mark.parametrize("strategy", ["arrow", "optimize"])
def test_rates_are_learned_from_runs(kept: Path, strategy: str) -> None:
    """On a machine where each rate differs from the built-in one."""
    rates = [rate * factor for rate, factor in zip(cost._RATES[strategy], [3, 0.5, 2] * 3, strict=True)]
    shapes = [(5_000, 10 * MIB, 1), (300, GIB, 8), (40, 2 * GIB, 40), (9_000, 60 * MIB, 2_000), (10, MIB, 1)]

    def predict(shapes: Sequence[tuple[int, int, int]]) -> tuple[list[Cost], list[float], float]:
        """Return the predictions, the true seconds, and the largest factor between them."""
        made = [predict_cost(files, size, outputs, size, strategy) for files, size, outputs in shapes]
        true = [float(np.dot(one.amounts[0], rates)) for one in made]
        ratios = [middle(one.seconds) / took for one, took in zip(made, true, strict=True)]
        return made, true, max(max(ratio, 1 / ratio) for ratio in ratios)

    made, true, missed = predict(shapes)
    assert missed > 1.7
    keep(kept, made * 2, true * 2)
    # The error is at most the difference between two runs.
    assert predict(shapes)[-1] < math.exp(cost._RUNS_DIFFER)
    # A shape that no run has had.
    assert predict([(2_000, 500 * MIB, 100)])[-1] < 1.5


def test_large_files_are_copied_by_arrow_alone_and_a_bin_is_one_task_of_optimize() -> None:
    copied, decoded = (predict_cost(count, GIB, 1, GIB) for count in (64, 1_000))
    assert middle(copied.seconds) < middle(decoded.seconds) / 2
    assert copied.memory < decoded.memory
    one, many = (predict_cost(64, GIB, bins, GIB, "optimize") for bins in (1, 20))
    assert many.memory > 2 * copied.memory
    assert middle(one.seconds) > 10 * middle(copied.seconds)
    assert middle(one.seconds) > 1.5 * middle(many.seconds) or os.cpu_count() == 1


def test_each_commit_takes_its_time(tmp_path: Path) -> None:
    table = open_table(shaped_table(tmp_path / "table", partitions=8, files=2, rows=10))
    one, many = (table.plan_compaction(batch_size=size) for size in ("1 GiB", "1 KiB"))
    for strategy, in_proof in (("arrow", 8), ("optimize", 1)):
        costs = [cost_of(table.handle, plan, strategy) for plan in (one, many)]
        # Sessions, first runs and runs; what else takes time is the same.
        run, proof = ([list(cost.amounts[i]) for cost in costs] for i in range(2))
        assert run[1] == [*run[0][:2], 8, *run[0][3:]]
        assert proof[1] == [*proof[0][:2], in_proof, *proof[0][3:]]
        assert costs[1].seconds[0] > costs[0].seconds[0]


def test_a_price_is_of_bytes_and_of_time() -> None:
    found = predict_cost(100, 3 * GIB, 10, 2 * GIB)
    assert found.price(per_gib=0.01) == pytest.approx((0.1, 0.1))
    assert found.price(per_hour=3600) == pytest.approx(found.total())
    assert found.total()[0] == found.seconds[0] + found.proof_seconds[0]
    assert found.total(verify=False) == found.seconds


def test_a_cost_names_proof_memory_and_requests() -> None:
    assert re.fullmatch(r"about .* for its proof; about .* of memory", str(predict_cost(9, 3 * MIB, 2, MIB)))
    stored = predict_cost(100, 3 * MIB, 10, 2 * MIB, remote=True)
    requests = f"about {stored.requests} requests to the store"
    assert f"{requests} and {stored.proof_requests} for the proof" in str(stored)
    assert stored.in_words(verify=False).endswith(requests)
    assert "proof" not in stored.in_words(verify=False)
    assert "amounts" not in stored.to_dict()


def test_rates_come_from_the_last_runs_that_did_what_was_predicted(kept: Path) -> None:
    predicted = predict_cost(9, MIB, 1, MIB)
    sizes = np.array(predicted.amounts[0])
    run = CompactionResult("arrow", "", sizes, sizes, num_files_removed=9)
    done = [replace(run, seconds=float(seconds)) for seconds in range(1, 15)]
    others: list[dict[str, Any]] = [{"strategy": "optimize"}, {"conflicts": ("another writer",)}]
    others += [{"refusals": {0: "a reason"}}, {"num_files_removed": 12}]
    runs = [*done, *(replace(done[0], **other) for other in others)]
    learned = [cost.learn(predicted, run).predicted for run in runs]
    assert learned == [predicted.total(verify=False)] * 14 + [None] * 4
    assert [run[-1] for run in json.loads(kept.read_text())["arrow"]] == [*range(3, 15)]


def test_runs_that_end_at_once_forget_none_of_the_others(kept: Path) -> None:
    costs = [predict_cost(9, MIB, 1, MIB, strategy) for strategy in ("arrow", "optimize", "reorg")]
    sizes = np.array([1])
    run = CompactionResult("", "", sizes, sizes, num_files_removed=9, seconds=1.0)

    def end(predicted: Cost) -> None:
        for _ in range(60):
            cost.learn(predicted, replace(run, strategy=predicted.strategy))

    with ThreadPoolExecutor() as pool:
        list(pool.map(end, costs))
    assert {name: len(runs) for name, runs in json.loads(kept.read_text()).items()} == dict.fromkeys(
        ("arrow", "optimize", "reorg"), 12
    )


@pytest.mark.works("S3", "optimize", when="optimize")
@pytest.mark.parametrize("strategy", ["arrow", pytest.param("optimize", marks=pytest.mark.nightly)])
def test_predicted_requests_are_those_that_a_store_gets(
    spark: SparkSession, on_s3: Server, shaped: Path, confs: SetConf, strategy: str
) -> None:
    """Files and requests are those that the server counts; the plan warns of a commit that could be lost."""
    table = open_table(on_s3.upload(shaped, f"cost-{strategy}"), spark)
    plan = table.plan_compaction()
    found = cost_of(table.handle, plan, strategy)
    assert "a second of work" in found.basis
    assert "one of the two commits is lost" in plan.explain()
    on_s3.requests.clear()
    with pytest.warns(UserWarning, match="On S3 Delta coordinates only the writers of one Spark driver"):
        result = plan.run(strategy)
    assert (result.as_planned, result.verified) == (True, True)
    of_data = [one for one in on_s3.requests if one.path.endswith(".parquet")]
    # Whether Spark reads once more in a bin differs from run to run.
    least = 0 if strategy == "arrow" else found.files_written
    assert 0 <= found.requests + found.proof_requests - len(of_data) <= least
    assert len({one.path for one in of_data if one.method == "GET"}) == found.files_read + found.files_written
    assert len([one for one in of_data if one.method == "PUT"]) == found.files_written == 3
    assert (found.files_read, found.bytes_read) == (result.num_files_removed, result.bytes_removed)
    assert found.bytes_written == pytest.approx(result.bytes_added, rel=0.2)
    assert result.facts()["seconds"].endswith(" were predicted)")
    confs("spark.delta.logStore.s3a.impl", "io.delta.storage.S3DynamoDBLogStore")
    assert plan.warnings == ()


def test_a_plan_says_what_runs_took(spark: SparkSession, changed: Path, kept: Path, tmp_path: Path) -> None:
    plan = open_table(changed, spark).plan_compaction()
    assert plan.cost.strategy == "arrow"
    assert cost_of(plan.handle, plan, "optimize").strategy == "optimize"
    result = plan.run()
    runs = json.loads(kept.read_text())
    assert {name: len(runs[name]) for name in runs} == {"arrow": 1, "proof": 1}
    proof = sum(row["seconds"] for row in result.timeline.to_pylist() if row["step"] == "proof")
    assert [runs[name][0][-1] for name in ("arrow", "proof")] == [result.seconds - proof, proof]
    assert result.predicted is not None
    table = open_table(changed, spark)
    assert table.plan_compaction(zorder_by=["id"]).cost.strategy == "optimize, sorting"
    empty = table.plan_compaction()
    assert empty.run().predicted is None
    assert (empty.cost.files_read, empty.cost.bytes_read, empty.cost.total()) == (0, 0, (0, 0))
    assert str(empty.cost) == "no time, as there is nothing to do"


@pytest.mark.parametrize(
    ("ran", "shares"),
    [
        ((), [1, 1, 1]),
        (("arrow",), [0, 0.5, 0.5]),
        (("rewrite",), [0, 0, 0]),
        (("arrow", "optimize"), [0, 0, 0]),
    ],
)
def test_cost_of_a_first_run_depends_on_what_has_run_in_this_jvm(
    changed: Path, monkeypatch: pytest.MonkeyPatch, ran: tuple[str, ...], shares: list[float]
) -> None:
    monkeypatch.setattr(cost, "RAN", {*ran})
    plan = open_table(changed).plan_compaction()
    found = [cost_of(plan.handle, plan, one, False).amounts for one in ("arrow", "optimize", "rewrite")]
    assert [first_runs for (_, first_runs, *_), _ in found] == shares


def spin(over: threading.Event) -> None:
    while not over.is_set():
        pass


def test_a_busy_thread_does_not_make_runs_look_slow(tmp_path: Path) -> None:
    def first_proof(table: Path) -> float:
        shaped_table(table, partitions=1, files=200, rows=200)
        return middle(open_table(table).plan_compaction().cost.proof_seconds)

    quiet, over = first_proof(tmp_path / "quiet"), threading.Event()
    threading.Thread(target=spin, args=[over]).start()
    try:
        busy = first_proof(tmp_path / "busy")
    finally:
        over.set()
    # If the time in which other threads work counted, this would be about 30 times as slow.
    assert busy < 12 * quiet, (busy, quiet)


def test_a_table_of_which_nothing_can_be_sampled_has_costs_that_are_built_in(tmp_path: Path) -> None:
    vector = handmade.inline_vector([1])
    adds = [handmade.add(name, vector=vector) for name in "ab"]
    table = open_table(handmade.write_log(tmp_path, [handmade.protocol(features=["deletionVectors"]), *adds]))
    cost = table.plan_purge().cost
    assert (cost.strategy, "built-in rates" in cost.basis) == ("reorg", True)

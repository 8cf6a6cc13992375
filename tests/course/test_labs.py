"""The parts of a lab, and how sentence and figure of each lesson's lab change with its controls.

tests/sinklog/test_policy.py shows that Spark leaves the log files that lesson 08's model projects.
"""

import os
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from course import labs
from course.lab import Choice, Finding, Lab, Steps, run
from course.labs.manifest import read_manifest
from course.labs.sink_log import NEEDED, REMOVED, log_files
from course.writers import SCENARIOS
from pyspark.sql import SparkSession

import compaction_kit as ck
from compaction_kit.compaction import CompactionPlan
from compaction_kit.datasets import shaped_table
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.sinklog.policy import Policy
from compaction_kit.table import Table
from compaction_kit.text import KIB, format_size
from compaction_kit.times import millis
from tests import folders
from tests.displayed import outputs_of
from tests.execute.meanwhile import wait_until
from tests.interop import manifests
from tests.sinklog.streams import make_log, names_after

LINES = "from course import figures\n\nfigures.waiting({'before': (files, 2.0), 'after': (1, 0.1)})"


def lab() -> Lab:
    def compute(size: int, where: str) -> Finding:
        if where == "nowhere":
            raise InvalidArgumentError('"nowhere" is no place: choose another one.')
        return Finding(f"{size} bytes < {where}", run(LINES, {"files": size}), LINES)

    return Lab(
        compute,
        size=Steps("Size", (KIB, 4 * KIB, 16 * KIB), KIB, format_size),
        where=Choice("Where", {"here": "a", "there": "b", "nowhere": "nowhere"}, "a"),
    )


def test_a_control_that_moves_changes_sentence_and_figure_and_what_cant_be_computed_is_a_sentence() -> None:
    shown = lab()
    first, (_, still) = shown.image.value, outputs_of(shown)
    # A saved or exported notebook has the sentence and the figure, without the folded code.
    assert still["text/plain"] == "1024 bytes < a"
    for html in (shown.sentence.value, still["text/html"]):
        assert "1024 bytes &lt; a" in html
    assert "<svg" in still["text/html"]
    assert "figures.waiting" not in still["text/html"]
    # Set the controls as the web page does.
    shown.controls["size"].value = 2
    shown.controls["where"].index = 1
    assert shown.controls["size"].text == "16 KiB"
    assert "16384 bytes &lt; b" in shown.sentence.value
    assert "16,384 files" in told(shown, {"files": 16 * KIB})
    assert shown.image.value != first
    assert "figures.waiting(" in shown.code.value
    move(shown, where="nowhere")
    assert "&quot;nowhere&quot; is no place: choose another one." in shown.failure.value
    assert (shown.finding, shown.sentence.value, shown.code.value) == (None, "", "")
    assert "is no place" in outputs_of(shown)[1]["text/html"]
    move(shown, where="b")
    assert shown.failure.value == ""
    assert "<svg" in shown.image.value


def test_a_value_that_isnt_there_is_refused() -> None:
    shown = lab()
    with pytest.raises(InvalidArgumentError, match="Size can't be 5: choose one of 1024"):
        move(shown, size=5)
    assert shown.values == {"size": KIB, "where": "a"}
    with pytest.raises(InvalidArgumentError, match="Where"):
        Choice("Where", {"here": "a"}, "b")


def move(lab: Lab, **values: Any) -> None:
    """Set controls by name."""
    for name, value in values.items():
        lab.controls[name].chosen = value


def found(lab: Lab) -> Finding:
    assert lab.finding is not None, lab.failure.value
    return lab.finding


def told(lab: Lab, names: dict[str, Any] | None = None) -> str:
    """Return the lab's sentence, and its figure's label for people who can't see the figure.

    With `names`, a notebook's variables, also assert that the lab's code gives this figure.
    """
    label = str(found(lab).figure.get_label())
    assert names is None or str(run(found(lab).code, dict(names)).get_label()) == label
    return f"{found(lab).sentence} {label}"


def follow(lab: Lab, *steps: tuple[Any, ...], names: dict[str, Any] | None = None) -> None:
    """Set controls step by step; assert the lab's words, and that the height of the figure stays the same."""
    height = found(lab).figure.get_figheight()
    for values, *said in steps:
        move(lab, **values)
        text = told(lab, names)
        assert [words for words in said if words not in text] == [], text
        assert found(lab).figure.get_figheight() == height


def test_a_feed_writes_files_and_readers_wait_for_them() -> None:
    follow(
        labs.feed(),
        # The figure neither grows nor shrinks when a table has no file yet.
        ({}, "3 files a day", "after 1 hour: 0 files"),
        # With eight requests at once, 1,095 files take 137 rounds, and 3 files take one.
        ({}, "After 1 year: 1,095 files, 6.9 s until open; compacted: 3 files, 50 ms"),
        ({"interval": 10, "partitions": 24}, "207,360 files a day"),
        ({"seconds_to_open": 0.1, "at_once": 1}, "after 1 day: 207,360 files, 5 h 46 min"),
        names={},
    )
    # A measured time to open a file becomes a step too.
    assert labs.feed(seconds_to_open=0.0007).controls["seconds_to_open"].text == "0.7 ms"


def test_settings_of_a_sink_s_log_change_which_of_its_files_are_left() -> None:
    follow(
        labs.sink_log(),
        ({}, "A reader needs 19.compact, 20, 21. 9.compact is the last compaction"),
        ({}, "after 22 batches, the log has written entries of 50 batches."),
        ({}, "After batch 21: 13 of 22 files left, a reader needs 3"),
        ({"retained": 100}, "No compaction has 100 batches after it yet, so no file may go"),
        ({"retained": 1, "delay": 30}, "once they are 30 minutes old"),
        ({"interval": 2, "batch": 59}, "59.compact. 57.compact"),
        names={},
    )


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Four appends of one file each, each larger; a delete of the first; a checkpoint; one more append."""
    path = tmp_path_factory.mktemp("tables") / "sales"
    for number in range(4):
        rows = pa.table({"id": pa.array(range(4_000 * number, 4_000 * number + 1_000 * (number + 1)))})
        deltalake.write_deltalake(path, rows, mode="append")
    table = deltalake.DeltaTable(path)
    table.delete("id < 1000")
    table.create_checkpoint()
    deltalake.write_deltalake(path, rows, mode="append")
    return ck.open_table(path)


def test_a_version_says_its_files_and_what_a_reader_of_it_reads(sales: Table) -> None:
    live = [len(sales.log.snapshot(version).live) for version in range(6)]
    follow(
        labs.log(sales),
        ({}, "the checkpoint of version 4 and commit 5. Without checkpoints it would read 6"),
        ({}, "Version 5: 4 live files, known from 2 files of the log"),
        *(({"version": number}, f"Version {number}: {live[number]} live file") for number in range(6)),
        ({"version": 3}, "commits 0 to 3"),
        names={"table": sales},
    )


def test_the_packer_is_followed_file_by_file(sales: Table, tmp_path: Path) -> None:
    sizes = sorted(sales.files().to_arrow()["size_bytes"].to_pylist())
    assert 4 * KIB < sizes[0] < 16 * KIB < sum(sizes[:2]) < sum(sizes) < 128 * KIB
    follow(
        labs.packing(sales),
        ({}, "In the end: 1 bin"),
        ({"num_seen": 0}, "No file has been looked at"),
        ({"num_seen": 1}, "it opens the first bin"),
        ({"num_seen": 2}, "in the bin it fits"),
        ({"max_file_size": 16 * KIB}, "that would be more than 16 KiB. The bin is closed, and a new"),
        ({}, "In the end: 0 bins, 0 B rewritten, 4 files after"),
        ({"min_file_size": 4 * KIB, "max_file_size": 128 * KIB}, "it is not small, and stays"),
        names={"table": sales},
    )
    parts = ck.open_table(shaped_table(tmp_path / "parts", partitions=2, files=2, rows=20))
    other = "it is of another partition, and opens another bin"
    follow(labs.packing(parts), ({"num_seen": 3}, other, "In the end: 2 bins"), names={"table": parts})


def test_a_budget_takes_the_best_bins_and_an_order_keeps_ranges_narrow(tmp_path: Path) -> None:
    table = ck.open_table(shaped_table(tmp_path / "skewed", partitions=4, files=20, rows=50, skew=1.0))
    steps, opened = [], []
    for order, share in (("size", 0.3), ("size", 1.0), ("event_time", 1.0)):
        budget = int(share * table.files().size_bytes)
        plan = table.plan_compaction(max_file_size="16 KiB", order=order, budget=budget)
        opened.append(plan.compare("event_time").layouts.to_pylist()[-1]["range_files"])
        said = f"80 files become {plan.num_files_after}.", f"opens {opened[-1]:.1f} of them"
        steps.append(({"order": order, "share": share}, *said))
    lab = labs.budget(table, "event_time", "16 KiB")
    follow(lab, *steps, ({}, "100% of the gain"), names={"table": table})
    assert opened[2] < opened[1]
    with pytest.raises(InvalidArgumentError, match="nowhere"):
        labs.budget(table, "nowhere", "16 KiB")


def test_optimize_runs_as_chosen_and_its_timeline_is_shown() -> None:
    ran = []

    def optimize(max_threads: int, repartition: bool) -> pa.Table:
        if max_threads == 2:
            raise InvalidArgumentError("No copy can be made: free some space.")
        ran.append((max_threads, repartition))
        rows = [("rewrite", None, bin_id, 1.0 + bin_id // max_threads, 0.9) for bin_id in range(3)]
        columns = zip(*rows, ("commit", None, None, 6.0, 0.2), strict=True)
        return pa.table(dict(zip(("step", "label", "bin_id", "start", "seconds"), columns, strict=True)))

    lab = labs.slots(optimize, {(15, False): optimize(15, False)})
    assert "max_threads=15, repartition=False: 3 bins in" in told(lab)
    move(lab, max_threads=1)
    wait_until(lambda: "Measured" in told(lab))
    follow(lab, ({}, "max_threads=1, repartition=False: 3 bins in", "rewriting on 1 slot"))
    move(lab, max_threads=15)
    move(lab, max_threads=1)
    assert ran == [(15, False), (1, False)]
    move(lab, max_threads=2)
    wait_until(lambda: "No copy can be made: free some space." in lab.failure.value)
    assert lab.sentence.value == ""
    move(lab, max_threads=15)
    assert lab.failure.value == ""
    assert "optimize(15, False)" in found(lab).code


@pytest.mark.spark
def test_a_story_is_played_by_a_click_and_stays_played(spark: SparkSession, tmp_path: Path) -> None:
    story = "append with ADD COLUMN"  # the fastest of the stories in which a writer is refused
    lab = labs.race(tmp_path / "stories", story, spark)
    button = lab.more[0]
    assert "Who wins? Make a guess, then play it." in told(lab)
    button.click()
    assert button.disabled
    wait_until(lambda: "Rows:" in told(lab))
    assert not button.disabled
    follow(
        lab,
        ({"story": "two compactions"}, "who wins?"),
        ({"story": story}, f"{story}: the ADD COLUMN won, the append was refused"),
        ({}, "The ADD COLUMN committed. The ADD COLUMN changed the table's columns"),
        ({}, "40 → 40, 0 lost, 0 doubled"),
    )
    assert "was refused" in told(lab, names={})


def test_every_story_can_be_chosen_and_one_that_cant_be_played_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    lab = labs.race(tmp_path)
    button, error = lab.more
    button.click()
    wait_until(lambda: f"{tmp_path} is inside the Delta table" in error.value)
    assert not button.disabled
    follow(lab, *(({"story": story}, f"{story}: who wins?") for story in SCENARIOS))
    with pytest.raises(InvalidArgumentError, match="Story can't be"):
        labs.race(tmp_path, "nobody")


def test_time_retention_and_a_version_to_keep_decide_what_is_lost(tmp_path: Path) -> None:
    path = Path(shaped_table(tmp_path / "table", partitions=0, files=4, rows=100, commits=4))
    # Deletes from the files of versions 1 and 2, which are live up to version 4.
    deltalake.DeltaTable(path).delete("id < 150")
    table, before = ck.open_table(path), folders.listing(path)
    lab = labs.vacuum(table)
    follow(
        lab,
        ({}, "would be lost: 1 to 4.", "VACUUM would lose 4 of 6 readable versions"),
        ({"days": 0}, "would delete nothing: files", "VACUUM would delete nothing"),
        ({"days": 8, "keep": (1,)}, "would be lost: 2 to 4.", "VACUUM would lose 3 of 6 readable versions"),
        ({"keep": (), "retention": 9}, "would delete nothing", "ignores RETAIN and would keep removed files"),
        names={"table": table},
    )
    move(lab, retention=6)
    assert "6 days&quot; would be ignored: since 4.1" in lab.failure.value
    assert lab.finding is None
    move(lab, retention=7)
    assert "RETAIN" not in told(lab)
    assert folders.listing(path) == before


@pytest.mark.parametrize(("interval", "retained", "delay"), [(3, 2, 0), (4, 5, 0), (3, 2, 7)])
def test_files_are_left_as_a_projection_says(
    tmp_path: Path, interval: int, retained: int, delay: int
) -> None:
    policy = Policy(interval, retained, timedelta(minutes=delay))
    folder = make_log(tmp_path / "_spark_metadata", b0="v1")
    # The projection writes its first batch at the time when the log is read.
    began = millis(ck.sink_log(folder).read_at) / 1_000 - 60
    os.utime(folder / "0", (began, began))
    log = ck.sink_log(folder, policy=policy)
    projected = log.project(30, seconds_between=60)
    for batch in range(1, 30):
        states = {row["name"]: row["state"] for row in log_files(policy, batch).to_pylist()}
        left = [name for name, state in states.items() if state != REMOVED]
        assert left == names_after(log, projected, batch), batch
        last = max(done for done in range(-1, batch + 1) if (done + 1) % interval == 0)
        needed = [*([f"{last}.compact"] if last >= 0 else []), *map(str, range(last + 1, batch + 1))]
        assert [name for name, state in states.items() if state == NEEDED] == needed, batch
    assert REMOVED in states.values()


@pytest.fixture
def plan(tmp_path: Path) -> CompactionPlan:
    """A plan of four batches over two partitions; in each partition one of seven files stays."""
    table = ck.open_table(shaped_table(tmp_path / "table", partitions=2, files=7, rows=300, commits=3))
    made = table.plan_compaction(min_file_size="10 KiB", max_file_size="24 KiB", batch_size="24 KiB")
    assert (made.num_batches, made.num_files_removed) == (4, 12)
    return made


def ids_in(paths: Iterable[Path]) -> Counter[int]:
    return Counter(row for path in paths for row in pq.ParquetFile(path).read(["id"])["id"].to_pylist())


def list_all(table: Path) -> None:
    """Add the live files that a manifest doesn't list, by hand."""
    listed = ck.interop.read_manifest(ck.open_table(table))["path"].to_pylist()
    for path in folders.live(table).difference(listed):
        lines = (table / "_symlink_format_manifest" / path).parent / "manifest"
        lines.write_text(f"{lines.read_text()}file:{table}/{path}\n")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_reader_gets_the_rows_that_the_lab_says(tmp_path: Path, plan: CompactionPlan) -> None:
    plan.run(strategy="arrow", verify=False)
    path = tmp_path / "table"
    rows = pa.table({"id": range(90_000, 90_050), "value": [0.5] * 50, "part": ["p0001"] * 50})
    deltalake.write_deltalake(path, rows, mode="append", schema_mode="merge")
    live = {path / name for name in folders.live(path)}
    live_ids = ids_in(live)
    for vacuumed in (False, True):
        # As after VACUUM without a retention.
        for file in folders.data_files(path) - live if vacuumed else ():
            file.unlink()
        for generated, by_hand in product(range(5), (False, True)):
            manifests.write_manifest(path, plan.version + generated)
            if by_hand:
                list_all(path)
            groups = read_manifest(plan, generated, 50, by_hand=by_hand, vacuumed=vacuumed)
            total, old, new, gone = (groups[name].to_numpy() for name in groups.column_names[1:])
            table = ck.open_table(path)
            listed = [path / name for name in ck.interop.read_manifest(table)["path"].to_pylist()]
            read = ids_in(file for file in listed if file.exists())
            assert (old + new).sum() == read.total()
            assert gone.sum() == ck.interop.check_manifest(table).num_gone
            if not gone.any():
                assert np.minimum(old, new).sum() == (read - live_ids).total()
                assert (total - np.maximum(old, new)).sum() == (live_ids - read).total()


def test_controls_of_the_manifest_lab_change_what_a_reader_gets(plan: CompactionPlan) -> None:
    follow(
        labs.manifest(plan),
        ({"generated": 2}, "GENERATE after 2 of 4 batches: 100 rows missed", "The table has 4,300 rows, and"),
        ({"appended": 0}, "each row is read once", "has 4,200 rows, and the reader gets 4,200. 1,800 of"),
        ({"then": ("by_hand",)}, "1,800 rows read twice"),
        ({"then": ("vacuumed",)}, "A reader fails at a missing file"),
        ({"appended": 5_000}, "6 files of the list gone, 6,800 rows missed"),
        ({"generated": 4, "appended": 0}, "the reader gets 4,200. GENERATE after 4", "each row is read once"),
        names={"plan": plan},
    )

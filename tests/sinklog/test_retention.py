"""A retention: what its plan says is what Spark's compaction drops."""

import json
import time
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import compaction_kit as ck
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.sinklog.policy import Kind
from tests.sinklog.streams import ENTRY, Stream, make_log

pytestmark = pytest.mark.spark
_DAY_MS = 86_400_000


def age_entries(log: Path, names: list[str]) -> None:
    """Put back the times that a sink's log has of files, by two days."""
    for name in names:
        lines = (log / name).read_text().splitlines()
        entries = [json.loads(line) for line in lines[1:]]
        for entry in entries:
            entry["modificationTime"] -= 2 * _DAY_MS
        text = "\n".join(["v1", *(json.dumps(entry, separators=(",", ":")) for entry in entries)])
        (log / name).write_text(text)
        (log / f".{name}.crc").unlink(missing_ok=True)


def test_a_compaction_drops_what_the_plan_says(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    stream.run(8)
    age_entries(stream.folders[Kind.SINK], ["0", "1", "4"])
    plan = ck.sink_log(stream.output).plan_retention("1 day")
    assert (plan.batch, len(plan.dropped), len(plan.kept)) == (9, 3, 5)
    assert plan.options == {"retention": "86400000ms"}
    assert plan.dropped_bytes == pc.sum(plan.dropped["size_bytes"]).as_py()
    assert "drop 3 of 8 entries" in plan.explain()
    assert plan.result().as_planned is None

    stream.run(1, plan.options)
    # Readers don't know of the option: before the compaction they see all.
    assert spark.read.parquet(str(stream.output)).count() == 9
    assert plan.result().batch is None
    stream.run(1, plan.options)
    result = plan.result()
    assert (result.batch, result.as_planned) == (9, True)
    assert result.dropped.equals(plan.dropped)
    ids = {row.id for row in spark.read.parquet(str(stream.output)).collect()}
    assert ids == {2, 3, 5, 6, 7, 8, 9}
    # The files stay, and no reader of the log sees them any more.
    assert len(list(stream.output.glob("*.parquet"))) == 10
    assert ck.sink_log(stream.output).compactions["num_entries"].to_pylist() == [7]
    assert "3 of 8 entries, as planned" in result._repr_html_()


def test_nothing_old_is_nothing_dropped(tmp_path: Path) -> None:
    line = json.dumps(ENTRY | {"modificationTime": int(time.time() * 1000)})
    batches = {f"b{batch}": f"v1\n{line}" for batch in range(9)}
    log = ck.sink_log(make_log(tmp_path / "_spark_metadata", **batches))
    plan = log.plan_retention("7 days")
    assert (plan.batch, len(plan.dropped)) == (9, 0)
    assert "would drop no entry" in plan.explain()
    assert len(log.plan_retention("900000 days").dropped) == 0
    later = log.plan_retention("7 days", at=log.read_at.replace(year=log.read_at.year + 1))
    assert len(later.dropped) == 9
    with pytest.raises(InvalidArgumentError, match="is not a length of time"):
        log.plan_retention("a while")

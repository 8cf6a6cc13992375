import pytest
from hypothesis import example, given, settings
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.execute.jobs import session_confs
from compaction_kit.retention import GUARD
from tests.history.random_histories import (
    RETENTION_DAYS,
    History,
    Step,
    histories,
    made,
    probe_all,
    take,
)

# Version 1 has lost its log, 2 is blocked, 3 lacks a file.
EVENTFUL = (
    Step("append"),
    Step("delete", 1),
    Step("age", RETENTION_DAYS),
    Step("checkpoint"),
    Step("append", 1),
    Step("trim the log"),
    Step("lose a file"),
    Step("delete", 2),
)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
@example(History(True, False, False, False, EVENTFUL))
@given(histories(6))
@settings(max_examples=settings().max_examples // 50)
def test_versions_says_what_an_attempt_to_read_each_finds_before_and_after_a_vacuum(
    spark: SparkSession, history: History
) -> None:
    with made(spark, history) as table:
        for guard in ("true", "false"):
            with session_confs(spark, {GUARD: guard}):
                versions = open_table(table, spark).versions().to_pylist()
                found = probe_all(spark, table)
                assert {row["version"]: row["readable"] for row in versions} == found
            take(spark, table, Step("vacuum"))

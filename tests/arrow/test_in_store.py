"""Runs on a store: what they write, and what they leave there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.arrow import job
from compaction_kit.arrow.worker import rewrite_bins
from compaction_kit.errors import CompactionKitError
from tests.folders import live
from tests.stores import SECRET_KEY, Server

pytestmark = pytest.mark.spark


@pytest.fixture
def table(on_s3: Server, shaped: Path, tmp_path: Path) -> str:
    """A copy of `shaped` on S3, at version 4."""
    uri = on_s3.upload(shaped, tmp_path.name)
    on_s3.requests.clear()
    return uri


def data_of(s3: Server, table: str) -> set[str]:
    """All objects of a table but its log's."""
    return {name for name in s3.names(table.rpartition("/")[2]) if not name.startswith("_delta_log/")}


def test_outputs_of_tries_that_lost_are_swept_after_a_success(
    spark: SparkSession, on_s3: Server, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice(*args: Any) -> Iterator[tuple[Any, ...]]:
        list(rewrite_bins(*args))
        return rewrite_bins(*args)

    monkeypatch.setattr(job, "rewrite_bins", twice)
    before = data_of(on_s3, table)
    result = open_table(table, spark).plan_compaction().run(strategy="arrow")
    # DuckDB has read them.
    assert (result.as_planned, result.verified, result.proof_reason) == (True, True, "")
    written = {one.path for one in on_s3.requests if one.method == "PUT" and "/part-" in one.path}
    assert len(written) == 6
    assert data_of(on_s3, table) == before | live(table)
    # Files stay in the folders of their partitions.
    assert len({name.rpartition("/")[0] for name in live(table)}) == 3


@pytest.mark.parametrize(
    ("method", "said"),
    [("GET", "can't be read: AWS Error ACCESS_DENIED during GetObject"), ("PUT", "get write permission")],
)
def test_a_store_without_permission_is_as_it_was(
    spark: SparkSession, on_s3: Server, table: str, method: str, said: str
) -> None:
    before = on_s3.names(table.rpartition("/")[2])
    plan = open_table(table, spark).plan_compaction()

    def refusing(asked: str, path: str) -> tuple[int, str] | None:
        return (403, "AccessDenied") if asked == method and "/part-" in path else None

    on_s3.fault = refusing
    with pytest.raises(CompactionKitError) as caught:
        plan.run(strategy="arrow")
    on_s3.fault = None
    assert SECRET_KEY not in str(caught.value)
    assert said in str(caught.value)
    assert on_s3.names(table.rpartition("/")[2]) == before

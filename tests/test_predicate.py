from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError, UnsupportedTableError
from compaction_kit.predicate import partitions_predicate
from tests import folders, handmade
from tests.conftest import SetConf
from tests.refusals import refused
from tests.releases import since_spark


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table partitioned by number, date and text; it is only a log, because a predicate reads no data."""
    types = {"n": "integer", "d": "date", "s p": "string"}
    values = [("1", "2024-01-01", "a"), ("1", "2024-01-02", "it's"), ("02", "2024-01-01", "a")]
    values += [("10", None, ""), (None, "2023-12-31", None), ("10", "2024-01-01", "a")]  # type: ignore[list-item]
    partitions = [dict(zip(types, one, strict=True)) for one in values]
    adds = [handmade.add(f"f{i}", partition=partition) for i, partition in enumerate(partitions)]
    metadata = handmade.metadata({"id": "long", **types}, list(types))
    return handmade.write_log(tmp_path_factory.mktemp("typed"), [metadata, *adds])


def paths(table: Path, where: str) -> str:
    """Return the numbers of the files that a predicate selects."""
    return "".join(path[1:] for path in open_table(table).files(where=where).to_arrow()["path"].to_pylist())


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        ("n = 2", "2"),
        ("n > 1", "235"),  # as numbers: "10" is above "02", and "02" above "1"
        ("N BETWEEN 1 AND 2", "012"),
        ("d = '2024-01-01'", "025"),
        ("year(d) = 2024 AND n <> 1", "25"),
        ("d IS NULL", "3"),
        ("n IS NULL OR `s p` = 'a'", "0245"),
        ("`s p` = 'it\\'s'", "1"),
        ("`s p` IN ('a', '(select 1)')", "025"),
        ("`s p` = ''", "3"),
        ("true", "012345"),
        ("n IS NULL -- and a comment", "4"),
    ],
)
def test_predicates_select_by_typed_value(spark: SparkSession, typed: Path, where: str, chosen: str) -> None:
    assert paths(typed, where) == chosen
    assert open_table(typed).files(where=where).partitions.num_rows == len(chosen)


@pytest.mark.parametrize("kind", ["TIMESTAMP_LTZ", "TIMESTAMP_NTZ"])
def test_a_time_in_sql_is_of_the_columns_type(
    spark: SparkSession, tmp_path: Path, confs: SetConf, kind: str
) -> None:
    confs("spark.sql.session.timeZone", "America/New_York")
    confs("spark.sql.timestampType", kind)
    times = [{"t": "2021-06-01T04:30:00.000000Z"}, {"t": "2021-06-01 00:30:00"}, {"t": "2021-06-01 04:30:00"}]
    adds = [handmade.add(f"f{i}", partition=one) for i, one in enumerate(times)]
    metadata = handmade.metadata({"id": "long", "t": "timestamp"}, ["t"])
    files = open_table(handmade.write_log(tmp_path, [metadata, *adds])).files()
    assert paths(tmp_path, "t = TIMESTAMP'2021-06-01 00:30:00'") == "01"
    assert paths(tmp_path, partitions_predicate(spark, files, np.array([0]))) == "01"


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("id = 1", "uses id, which is not a partition column: use only n, d, s p"),
        ("n = 1 AND w.x = 1", "uses w.x, which is not a partition column"),
        ("n = = 1", "can't be parsed as SQL"),
        ("n = 1 ZORDER BY (id)", "can't be parsed as SQL"),
        ("n", "can't be used: [DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN]"),
        ("no_such_function(n) = 1", "can't be used: [UNRESOLVED_ROUTINE]"),
        ("sum(n) = 1", "can't be used: [INVALID_WHERE_CONDITION]"),
        pytest.param(
            "`s p` = 3",
            "can't be used: [CAST_INVALID_INPUT] The value 'a' of the type \"STRING\"",
            marks=since_spark("4.0"),
        ),
        pytest.param("1 / 0 = n", "can't be used: [DIVIDE_BY_ZERO]", marks=since_spark("4.0")),
    ],
)
def test_a_predicate_that_can_not_be_used_is_refused_in_one_sentence(
    spark: SparkSession, typed: Path, where: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = folders.listing(typed)
    plan = partial(open_table(typed).plan_compaction, where=where)
    refused(plan, InvalidArgumentError, f'where="{where}" ', reason)
    assert capfd.readouterr().err == ""
    assert folders.listing(typed) == before


@pytest.mark.parametrize("chosen", ["0", "1", "3", "4", "0235", "012345"])
def test_the_predicate_for_given_partitions_selects_them_and_no_other(
    spark: SparkSession, typed: Path, chosen: str
) -> None:
    files = open_table(typed).files()
    predicate = partitions_predicate(spark, files, np.array([int(number) for number in chosen]))
    assert paths(typed, predicate) == chosen


def test_an_empty_partition_value_of_a_number_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    adds = [handmade.add("f0", partition={"n": ""})]
    metadata = handmade.metadata({"id": "long", "n": "integer"}, ["n"])
    files = open_table(handmade.write_log(tmp_path, [metadata, *adds])).files()
    call = partial(partitions_predicate, spark, files, np.array([0]))
    refused(call, UnsupportedTableError, 'n is "", which is not of type integer')
    assert paths(tmp_path, "n IS NULL") == "0"

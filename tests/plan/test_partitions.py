import datetime
from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from compaction_kit.errors import UnsupportedTableError
from compaction_kit.plan.partitions import partition_groups, typed_value
from compaction_kit.times import parse_time_zone


def groups_of(
    values: Sequence[str | None], kind: str, zone: datetime.tzinfo | None = datetime.UTC
) -> list[int]:
    table = pa.table({"partition.p": pa.array(values, pa.string())})
    return partition_groups(table, {"p": kind}, zone).tolist()


@pytest.mark.parametrize(
    ("kind", "same"),
    [
        ("integer", ["1", "01", "+1", " 1 "]),
        ("long", ["-7", "-07"]),
        ("byte", ["-128", "-0128"]),
        ("integer", ["2147483647", "+2147483647"]),
        ("date", ["2024-01-01", "2024-1-1", "2024-01-01 10:00:00", "2024-01"]),
        ("double", ["1.0", "1e0", "1", "1.00"]),
        ("double", ["NaN", "nan"]),
        ("boolean", ["true", "TRUE", "t", "yes", "1"]),
        ("decimal(10,2)", ["1.50", "1.5", "01.5", "1.495", "1.504"]),
        ("timestamp", ["2024", "2024-1-1 0:0", "2024-01-01T00:00:00Z", "2024-01-01T02:00:00+02:00"]),
        ("timestamp_ntz", ["2024-01-01 00:00:00", "2024-01-01T00:00:00.000000"]),
    ],
    ids=str,
)
def test_values_that_are_the_same_to_their_type_are_one_partition(kind: str, same: list[str]) -> None:
    assert groups_of(same, kind) == [0] * len(same)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("string", ["1", "01", " 1", "a", "A"]),
        ("binary", ["a", " a", "a "]),
        ("integer", ["1", "2", "-1"]),
        ("date", ["2024-01-01", "2024-01-02"]),
        ("boolean", ["true", "false"]),
        ("string", ["", None, "null"]),
        ("integer", ["", None, "0"]),
    ],
    ids=str,
)
def test_values_that_differ_are_apart_as_are_empty_text_and_null(kind: str, values: list[str | None]) -> None:
    assert groups_of(values, kind) == list(range(len(values)))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("integer", "x"),
        ("integer", "1.5"),
        ("integer", "1_0"),
        ("integer", "2147483648"),
        ("byte", "-129"),
        ("date", "2024-13-01"),
        ("date", "yesterday"),
        ("boolean", "maybe"),
        ("double", "one"),
        ("timestamp", "noon"),
        ("decimal(10,2)", "x"),
        ("decimal(10,2)", "100000000"),
        ("string", "__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_a_value_that_is_none_of_its_type_is_refused_by_name(kind: str, value: str) -> None:
    with pytest.raises(UnsupportedTableError) as caught:
        groups_of(["", value], kind)
    assert f'"{value}" of column p' in str(caught.value)
    assert f"can't be read as {kind}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.spark
def test_dates_are_the_days_that_spark_counts(spark: SparkSession) -> None:
    texts = ["0001-01-01", "1582-10-15", "1969-12-31", "2000-02-29", "2024-3", "9999-12-31", "+12345-06-07"]
    frame = spark.createDataFrame([(text,) for text in texts], "t string")
    rows = frame.selectExpr("t", "unix_date(CAST(t AS DATE)) d").collect()
    assert len(rows) == len(texts)
    assert {row["t"]: typed_value(row["t"], "p", "date", None) for row in rows} == dict(map(tuple, rows))


DAY = "2024-06-01"
TIMES = [
    *("2024", "2024-6", DAY, "2024-6-1 1", "2024-6-1 1:2", "2024-6-1 1:2:3", f"{DAY}T01:02:03.1"),
    *(f"{DAY} 01:02:03.123456789", f"{DAY} 01:02:03.", f"{DAY} 01:02:03Z", f"{DAY} 1:2:3 UTC"),
    *(f"{DAY} 01:02:03+02:00", f"{DAY} 01:02:03-8:30", f"{DAY} 01:02:03 Asia/Tokyo", f"{DAY}x"),
    *("2024-13-01 00:00:00", "2024-02-30 00:00:00", f"{DAY} 24:00:00", f"{DAY} 01:60:00", "noon"),
    *(f"{DAY} 01:02:03 Mars/Olympus", "24-06-01 01:02:03", f"{DAY} 01:02:03+19:00"),
]


@pytest.mark.spark
def test_timestamps_are_read_as_spark_casts_them(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(text,) for text in TIMES], "t string")
    rows = frame.selectExpr("t", "unix_micros(try_cast(t AS timestamp)) m").collect()
    known = [(row["t"], row["m"]) for row in rows if row["m"] is not None]
    zone = parse_time_zone(spark.conf.get("spark.sql.session.timeZone") or "UTC")
    numbers: dict[int, int] = {}
    expected = [numbers.setdefault(moment, len(numbers)) for _, moment in known]
    assert groups_of([text for text, _ in known], "timestamp", zone) == expected
    for row in rows:
        if row["m"] is None:
            with pytest.raises(UnsupportedTableError):
                groups_of([row["t"]], "timestamp", zone)

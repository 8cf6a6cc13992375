import datetime
from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from compaction_kit.errors import UnsupportedTableError
from compaction_kit.plan.partitions import partition_groups, typed_value
from compaction_kit.plan.thresholds import session_rules
from compaction_kit.times import parse_time_zone


def groups_of(
    values: Sequence[str | None], kind: str, zone: datetime.tzinfo | None = datetime.UTC
) -> list[int]:
    table = pa.table({"partition.p": pa.array(values, pa.string())})
    return partition_groups(table, {"p": kind}, zone).tolist()


DAY = "2024-06-01"
# By type: texts of the same value, of other values, or of no value of the type.
TEXTS = {
    "integer": [
        *("1", "01", "+1", " 1 ", "2", "-1", "2147483647", "+2147483647"),
        *("2147483648", "x", "1.5", "1_0"),
    ],
    "long": ["-7", "-07"],
    "byte": ["-128", "-0128", "-129"],
    "date": [
        *("2024-01-01", "2024-1-1", "2024-01-02", "2024-13-01", "yesterday", "0001-01-01"),
        *("1582-10-15", "1969-12-31", "2000-02-29", "9999-12-31"),
    ],
    "double": ["1.0", "1e0", "1", "1.00", "NaN", "nan", "0", "-0.0", "one"],
    "boolean": ["true", "TRUE", "t", "yes", "1", "false", "maybe"],
    "decimal(10,2)": ["1.50", "1.5", "01.5", "1.495", "1.504", "x", "100000000"],
    "string": ["1", "01", " 1", "a", "A", "null"],
    "binary": ["a", " a", "a "],
    "timestamp_ntz": ["2024-01-01 00:00:00", "2024-01-01T00:00:00.000000"],
    "timestamp": [
        *("2024-01-01 00:00", "2024-01-01T00:00:00Z", "2024-01-01T02:00:00+02:00", DAY, f"{DAY}T01:02:03.1"),
        *(f"{DAY} 01:02:03.123456789", f"{DAY} 01:02:03Z", f"{DAY} 01:02:03-08:30", f"{DAY}x", "noon"),
        *("2024-13-01 00:00:00", "2024-02-30 00:00:00", f"{DAY} 01:60:00", "24-06-01 01:02:03"),
        *("0001-01-02 00:00:00", "0001-01-01T00:00:00Z", "0001-01-01 08:00:00+08:00"),
        *("9999-12-31 23:59:59.999999", "9999-12-31T23:59:59.999999Z", "9999-12-31 23:59:59.999999-08:00"),
    ],
}


@pytest.mark.spark
def test_values_are_one_partition_if_spark_casts_them_to_one_value(spark: SparkSession) -> None:
    everything = {text for texts in TEXTS.values() for text in texts}
    casts = [f"CAST(try_cast(t AS {kind}) AS STRING)" for kind in TEXTS]
    rows = (
        spark.createDataFrame([(text,) for text in everything], "t string")
        .selectExpr("t", *casts, "unix_date(try_cast(t AS date))", "unix_micros(try_cast(t AS timestamp))")
        .collect()
    )
    texts, *columns, days, micros = zip(*rows, strict=True)
    cast_to = {
        kind: dict(zip(texts, column, strict=True)) for kind, column in zip(TEXTS, columns, strict=True)
    }
    # As numbers, because a local time that occurs twice is two values.
    cast_to |= {"timestamp": dict(zip(texts, micros, strict=True))}
    zone = parse_time_zone(spark.conf.get("spark.sql.session.timeZone") or "UTC")
    for kind, own in TEXTS.items():
        values = [cast_to[kind][text] for text in own]
        known = [text for text, value in zip(own, values, strict=True) if value is not None]
        distinct = list(dict.fromkeys(value for value in values if value is not None))
        expected = [distinct.index(value) for value in values if value is not None]
        assert groups_of(known, kind, zone) == expected, kind
        for text in set(own).difference(known):
            with pytest.raises(UnsupportedTableError) as caught:
                groups_of(["", text], kind, zone)
            assert f'"{text}" of column p can\'t be read as {kind}' in str(caught.value)
            assert "\n" not in str(caught.value)
    numbers = zip(texts, days, strict=True)
    dates = {text: day for text, day in numbers if text in TEXTS["date"] and day is not None}
    assert {text: typed_value(text, "p", "date", None) for text in dates} == dates


@pytest.mark.parametrize("name", ["UTC", "America/Los_Angeles", ""])
def test_the_first_and_last_times_of_the_calendar_are_values(name: str) -> None:
    """Some writers use these times for no time, or for the end of time."""
    zone, last = parse_time_zone(name) if name else None, "9999-12-31 23:59:59.999999"
    assert groups_of(["0001-01-01 12:00:00", last, last], "timestamp", zone) == [0, 1, 1]


def test_a_time_that_is_of_the_year_0_in_utc_is_refused() -> None:
    """OPTIMIZE of Delta 4.4 writes 0001-12-31T23:50:39.000000Z for it."""
    with pytest.raises(UnsupportedTableError, match="before the year 1 in UTC, into another time"):
        groups_of(["0001-01-01 00:00:00"], "timestamp", parse_time_zone("Europe/Paris"))
    assert groups_of(["0001-01-01T00:00:00Z"], "timestamp", parse_time_zone("Europe/Paris")) == [0]


def test_a_setting_is_read_in_any_case() -> None:
    name = "spark.databricks.delta.normalizePartitionValuesOnRead"
    assert not session_rules({name: "False"}.get, None).by_type


def test_empty_text_and_null_are_apart_and_the_name_of_a_folder_of_nulls_is_no_value() -> None:
    assert groups_of(["", None, "null"], "string") == groups_of(["", None, "0"], "integer") == [0, 1, 2]
    with pytest.raises(UnsupportedTableError, match='"__HIVE_DEFAULT_PARTITION__" of column p'):
        groups_of(["__HIVE_DEFAULT_PARTITION__"], "string")


@pytest.mark.parametrize(("kind", "expected"), [("double", [0, 1, 2, 2, 3]), ("string", [0, 0, 1, 2, 3])])
def test_values_beside_an_empty_non_string_value_count_as_texts(kind: str, expected: list[int]) -> None:
    texts = {"partition.p": ["1", " 1", "1", " 1", "1"], "partition.q": ["", "", "2", "2.0", None]}
    assert partition_groups(pa.table(texts), {"p": "integer", "q": kind}, None).tolist() == expected

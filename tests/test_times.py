import os
import time
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from compaction_kit import errors, open_table
from compaction_kit.execute.jobs import session_confs
from compaction_kit.times import in_zone, to_instant
from tests import handmade
from tests.conftest import SetConf
from tests.refusals import refused

ZONE = "spark.sql.session.timeZone"
ZONES = ["UTC", "Pacific/Auckland", "America/New_York"]
# Before, in and after the hours that clocks skip or repeat in 2026: in New York on March 8th and
# November 1st, in Auckland on April 5th and September 27th.
LOCAL = [
    *("2026-03-08 01:59:59", "2026-03-08 02:30:00", "2026-03-08 03:00:00"),
    *("2026-04-05 01:59:59", "2026-04-05 02:30:00", "2026-04-05 03:00:00"),
    *("2026-09-27 01:59:59", "2026-09-27 02:30:00", "2026-09-27 03:00:00"),
    *("2026-11-01 00:59:59", "2026-11-01 01:30:00", "2026-11-01 02:00:00"),
]
# Texts that Spark takes and the kit refuses, because they aren't ISO 8601.
REFUSED = ["05:32", "2026-4-5", "10000-01-01", "2026-04-05 02:30:00 PST", "2026-04-05 02:30:00 Europe/Paris"]
DAY = "2026-04-05"
TEXTS = [
    *LOCAL,
    *(f"{DAY} 02:30:00{zone}" for zone in ("Z", "+02", "+0200", "-02:30", "+02:00:30", "x")),
    *(DAY, f" {DAY} ", f"{DAY} 02", f"{DAY}T02:30", f"{DAY} 02:30:00.1", f"{DAY} 02:30:00.123456789"),
    *("2026-02-30", "2026-13-01", "26-04-05", "", "now", f"{DAY} 02:60:00"),
    *("1900-01-01", "1582-10-10", "0001-01-02", "9999-12-30"),
]


def spark_micros(spark: SparkSession, texts: list[str]) -> list[int | None]:
    rows = spark.createDataFrame([(text,) for text in texts], "t string")
    return [row[0] for row in rows.selectExpr("unix_micros(try_cast(t AS timestamp))").collect()]


def kit_micros(text: Any, spark: SparkSession | None = None) -> int | None:
    try:
        instant = to_instant(text, "timestamp", spark)
    except errors.InvalidArgumentError:
        return None
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.parametrize("zone", [*ZONES, "+05:30"])
def test_a_time_as_text_is_what_spark_casts_it_to(spark: SparkSession, confs: SetConf, zone: str) -> None:
    confs(ZONE, zone)
    expected = dict(zip(TEXTS, spark_micros(spark, TEXTS), strict=True))
    assert {text: kit_micros(text) for text in TEXTS} == expected
    assert [kit_micros(text) for text in REFUSED] == [None] * len(REFUSED)


@pytest.mark.parametrize("zone", ["UTC+2", "GMT-03:30", "UT+01", "UT", "Z", "Zulu", "+5:30", "-8"])
def test_zones_are_those_that_spark_takes(spark: SparkSession, confs: SetConf, zone: str) -> None:
    confs(ZONE, zone)
    assert [kit_micros(text) for text in LOCAL] == spark_micros(spark, LOCAL)


@given(moments=st.lists(st.datetimes(datetime(1970, 1, 2), datetime(2037, 1, 1)), min_size=40, max_size=40))
@settings(max_examples=settings().max_examples // 50)
def test_a_datetime_without_a_zone_is_in_the_sessions(spark: SparkSession, moments: list[datetime]) -> None:
    texts = [str(moment) for moment in moments]
    for zone in ZONES:
        with session_confs(spark, {ZONE: zone}):
            expected = spark_micros(spark, texts)
            assert [kit_micros(text) for text in texts] == expected
            assert [kit_micros(moment) for moment in moments] == expected
            assert kit_micros(pd.Timestamp(moments[0])) == expected[0]


def test_a_time_with_no_zone_is_in_the_sessions(spark: SparkSession, tmp_path: Path, confs: SetConf) -> None:
    handmade.write_log(tmp_path, *([handmade.add(name)] for name in "abcd"))
    for version in range(4):
        seconds = datetime(2026, 4, 4, 12 + version, 40, tzinfo=UTC).timestamp()
        os.utime(handmade.commit_path(tmp_path, version), (seconds, seconds))
    confs(ZONE, "Pacific/Auckland")
    table = open_table(tmp_path, spark)
    # At 14:00 UTC clocks went back from 3 to 2, and Spark takes the first of the two hours.
    for text, version in (("2026-04-05 01:50", 0), ("2026-04-05 02:50", 1), ("2026-04-05 03:00", 2)):
        at = table.at(timestamp=text)
        assert (text, at.version) == (text, version)
        # The time that is shown can be given as an argument.
        assert at.timestamp is not None
        shown = at.timestamp.isoformat(" ", "milliseconds")
        assert shown in repr(at)
        assert table.at(timestamp=shown).version == version
    plan = table.plan_vacuum(at="2029-01-02 15:30:00")
    assert plan.at == datetime(2029, 1, 2, 2, 30, tzinfo=UTC)
    assert "2029-01-02 15:30" in plan.explain()


@pytest.mark.parametrize("zone", ZONES)
def test_without_a_session_the_machines_zone_counts(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    moments = list(map(datetime.fromisoformat, LOCAL))
    with monkeypatch.context() as patched:
        patched.setenv("TZ", zone)
        time.tzset()
        found = [in_zone(moment, None) for moment in moments]
    time.tzset()
    for moment, here in zip(moments, found, strict=True):
        assert here.timestamp() == in_zone(moment, ZoneInfo(zone)).timestamp(), moment


@pytest.mark.parametrize(
    "value",
    [
        *("noon", "2026-01-01\nUTC", "0001-01-01 00:00+18:00", "9" * 5_000, b"2026-01-01", 5, True, None),
        *([], date(2026, 1, 1), pd.NaT, pd.Series(["2026-01-01"] * 2), np.datetime64("2026-01-01")),
    ],
)
def test_what_is_no_time_is_refused_in_one_sentence(value: Any) -> None:
    words = "at=", ' is not a time: write it as "2024-05'
    assert len(str(refused(partial(to_instant, value, "at"), errors.InvalidArgumentError, *words))) < 400

"""Parse times as Delta does in TIMESTAMP AS OF, and format them with their offset.

A time without a zone is in the session's time zone, spark.sql.session.timeZone
(DeltaTimeTravelSpec.getTimestamp), or in the machine's if no session runs.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from compaction_kit.active import active_spark
from compaction_kit.errors import InvalidArgumentError, UnsupportedTableError, show_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ZONE = "spark.sql.session.timeZone"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def session_zone(spark: SparkSession | None = None) -> tzinfo | None:
    """Return the time zone of a session, or of the active session; None (the machine's) without one.

    Raises:
        UnsupportedTableError: The session's zone is unknown to Python.
    """
    session = active_spark(spark)
    return None if session is None else parse_time_zone(session.conf.get(_ZONE) or "UTC")


def to_instant(time: datetime | str, name: str, spark: SparkSession | None = None) -> datetime:
    """Convert a datetime, or text in ISO 8601, to an instant in the session's time zone.

    A time without a zone is in the session's (see `session_zone`). For a local time that a change of clocks
    skips or repeats, the offset before the change counts, as in Spark.

    Raises:
        InvalidArgumentError: The value is not a time; the message has `name`.
    """
    zone = session_zone(spark)
    try:
        if isinstance(time, str):
            moment = datetime.fromisoformat(time.strip())
        else:
            # A plain datetime, because pandas.Timestamp converts times without a zone differently.
            moment = datetime.combine(time.date(), time.time(), time.tzinfo)
        return in_zone(moment, zone)
    except (ValueError, OverflowError, AttributeError, TypeError, UnsupportedTableError):
        raise InvalidArgumentError(
            f'{name}={show_value(time)} is not a time: write it as "2024-05-01 12:00:00", or with an offset '
            'as "2024-05-01 12:00:00+02:00".'
        ) from None


def now(spark: SparkSession | None = None) -> datetime:
    """Return the current time in the session's time zone."""
    return datetime.now(UTC).astimezone(session_zone(spark))


def in_zone(moment: datetime, zone: tzinfo | None) -> datetime:
    """Convert a time to a zone (None: the machine's); a time without a zone is in that zone."""
    if moment.tzinfo is None and zone is None:
        # For a skipped time, `astimezone` takes the offset after the change of clocks, `timestamp` the other.
        moment = datetime.fromtimestamp(moment.timestamp(), UTC)
    elif moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    # Conversion through UTC turns a skipped local time into an existing one.
    return moment.astimezone(UTC).astimezone(zone)


def show_time(moment: datetime, precision: str = "minutes") -> str:
    """Format a time with its offset, such as "2024-05-01 12:00+02:00"; Spark can't read "minutes"."""
    return moment.isoformat(" ", precision)


def millis(moment: datetime) -> int:
    """Convert a time to ms since 1970, rounded down."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def parse_time_zone(name: str) -> tzinfo:
    """Parse a time zone of Spark: a region such as "Europe/Paris", or an offset such as "+02:00" or "UTC+2".

    Raises:
        UnsupportedTableError: The name is neither.
    """
    # ZoneId.of, and the offsets with one digit that Spark adds (SparkDateTimeUtils.getZoneId).
    offset = re.fullmatch(r"(?:UTC|GMT|UT)?([+-])(\d\d?)(.*)", name)
    try:
        if offset:
            sign, hours, rest = offset.groups()
            return datetime.fromisoformat(f"2000-01-01 00:00{sign}{hours:0>2}{rest}").tzinfo or UTC
        return UTC if name in ("Z", "UT") else ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise UnsupportedTableError(
            f'The time zone "{name}" is unknown: set spark.sql.session.timeZone to a region such as '
            '"Europe/Paris" or an offset such as "+02:00".'
        ) from None

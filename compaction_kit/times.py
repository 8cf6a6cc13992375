"""Times as text: read as Delta reads them in TIMESTAMP AS OF, and written with their offset.

A time without a zone is in the session's time zone, spark.sql.session.timeZone, or in the machine's
where no session runs (DeltaTimeTravelSpec.getTimestamp casts it with the session's).
"""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql import SparkSession

from compaction_kit.errors import InvalidArgumentError, UnsupportedTableError, show_value
from compaction_kit.session import active_spark

_ZONE = "spark.sql.session.timeZone"
# Java's ZoneId.of, with the hours and minutes of one digit that Spark adds (DateTimeUtils.getZoneId).
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?([+-])(?:(\d{1,2})|(\d\d)(\d\d)(\d\d)?|(\d{1,2}):(\d\d?)|(\d{1,2}):(\d\d):(\d\d))",
    re.ASCII,
)
_MOST_OFFSET = timedelta(hours=18)
_MOMENT = re.compile(
    r"\+?(?P<year>\d{4})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})(?:[ T](?P<hour>\d{1,2})"
    r"(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?"
    r"(?P<zone> ?[A-Za-z+-][\w/+:-]*)?)?)?)?)?)?",
    re.ASCII,
)
_MICRO_DIGITS = 6
_FIRST, _EPOCH = datetime(1, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)


def session_zone(spark: SparkSession | None = None) -> tzinfo | None:
    """The time zone of a session; None for the machine's, where no session runs.

    Args:
        spark: The session; None for the one that is active.

    Raises:
        UnsupportedTableError: It is set to a zone that isn't known here.
    """
    session = spark or active_spark()
    return None if session is None else parse_time_zone(session.conf.get(_ZONE) or "UTC")


def to_instant(time: datetime | str, name: str, spark: SparkSession | None = None) -> datetime:
    """The instant that a time stands for, in the session's time zone.

    Of a local time that a change of clocks skips or repeats, the offset from before the change
    counts, as in Spark.

    Args:
        time: A datetime, or text as Spark casts it to a timestamp: "2024-05-01", "2024-05-01
            12:00:00", with a zone after the seconds "2024-05-01 12:00:00+02:00". Without a zone it is
            in the session's.
        name: The argument's name, for the error.
        spark: Whose time zone counts; None for the active session's, else the machine's.

    Raises:
        InvalidArgumentError: It is no time.
    """
    zone = session_zone(spark)
    try:
        if isinstance(time, str):
            moment = parse_fields(time.strip())
        else:
            # Never a subclass: pandas' Timestamp converts otherwise, and without a zone loses its instant.
            moment = datetime.combine(time.date(), time.time(), time.tzinfo)
        return in_zone(moment, zone)
    except (ValueError, OverflowError, AttributeError, TypeError, UnsupportedTableError) as error:
        raise InvalidArgumentError(
            f'{name}={show_value(time)} is not a time: write it as "2024-05-01 12:00:00", or with an offset '
            'as "2024-05-01 12:00:00+02:00".'
        ) from error


def now(spark: SparkSession | None = None) -> datetime:
    """This moment, in the session's time zone."""
    return datetime.now(UTC).astimezone(session_zone(spark))


def in_zone(moment: datetime, zone: tzinfo | None) -> datetime:
    """A moment in a time zone, which is its own if it has none; None for the machine's zone."""
    if moment.tzinfo is None and zone is not None:
        moment = moment.replace(tzinfo=zone)
    if moment.tzinfo is None:
        # Not by astimezone(), which takes the offset from after the change for a time that was skipped.
        seconds = datetime.fromtimestamp(moment.replace(microsecond=0).timestamp(), UTC)
        return seconds.replace(microsecond=moment.microsecond).astimezone()
    # By way of UTC, where a local time that was skipped becomes one that there is.
    return moment.astimezone(UTC).astimezone(zone)


def show_time(moment: datetime, precision: str = "minutes") -> str:
    """A time with its offset, as Spark reads it too: "2024-05-01 12:00+02:00".

    Args:
        moment: The time, in the zone to show it in.
        precision: "minutes" (not read by Spark), "seconds" or "milliseconds".
    """
    return moment.isoformat(" ", precision)


def millis(moment: datetime) -> int:
    """A time in ms since 1970, rounded down."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def earlier(moment: datetime, length: timedelta) -> datetime:
    """The time a length before a moment, or the first that there is: some keep files for a million days."""
    return moment - min(length, moment - _FIRST)


def parse_fields(text: str) -> datetime:
    """A time as Spark's cast reads it: parts may lack zeros, and from the month on be missing.

    Raises:
        ValueError: It is none.
        UnsupportedTableError: Its zone is unknown.
    """
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    parts = match.groupdict()
    fraction = (parts.pop("fraction") or "").ljust(_MICRO_DIGITS, "0")[:_MICRO_DIGITS]
    zone = parts.pop("zone")
    # The first of what is missing: January, the 1st, midnight.
    first = {"month": 1, "day": 1}
    fields: dict[str, Any] = {name: int(part) if part else first.get(name, 0) for name, part in parts.items()}
    moment = datetime(**fields, microsecond=int(fraction))
    return moment.replace(tzinfo=parse_time_zone(zone.strip())) if zone else moment


def parse_time_zone(name: str) -> tzinfo:
    """A time zone as Spark names it: a region such as "Europe/Paris", or an offset such as "+02:00".

    Raises:
        UnsupportedTableError: It is neither.
    """
    match = _OFFSET.fullmatch(name)
    if match is not None:
        hours, minutes, seconds = ([*(int(part) for part in match.groups()[1:] if part), 0, 0])[:3]
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if minutes < 60 and seconds < 60 and offset <= _MOST_OFFSET:
            return timezone(-offset if match[1] == "-" else offset)
    try:
        return ZoneInfo("UTC" if name in ("Z", "UT") else name)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise UnsupportedTableError(
            f'The time zone "{name}" is unknown: set spark.sql.session.timeZone to a region such as '
            '"Europe/Paris" or an offset such as "+02:00".'
        ) from error

"""How long a table keeps removed files and its log."""

import re
from datetime import datetime, timedelta

from compaction_kit.errors import InvalidArgumentError, show_value
from compaction_kit.log.protocol import Metadata
from compaction_kit.text import format_count
from compaction_kit.times import millis

PROPERTY = "delta.deletedFileRetentionDuration"
LOG_PROPERTY = "delta.logRetentionDuration"
# By default Delta refuses to read versions older than `PROPERTY`, and VACUUM ignores a RETAIN above 0.
GUARD = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
IGNORE_RETAIN = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"
_UNITS = {"microsecond": 1e-6, "millisecond": 1e-3, "second": 1, "minute": 60, "hour": 3600}
_UNITS |= {"day": 86_400, "week": 604_800}
# Spark's settings also have short units (JavaUtils.timeStringAs).
_UNITS |= {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400}
_LENGTH = rf"\+?(\d+(?:\.\d+)?)\s*({'|'.join(_UNITS)})s?\b\s*"
# About 2,700 years, so that times that are so far away are still dates.
_FOR_EVER = 1e6 * _UNITS["day"]
_RETENTION = re.compile(rf"(?:interval\s+)?(?:{_LENGTH})+")


def table_retention(metadata: Metadata) -> timedelta:
    """Return how long a table keeps removed files, by its property: a week by default."""
    return parse_retention(metadata.configuration.get(PROPERTY, "interval 1 week"), PROPERTY)


def parse_retention(text: str, name: str = "retention") -> timedelta:
    """Parse a length of time such as "168 hours", "7d" or "interval 1 week".

    Raises:
        InvalidArgumentError: The text is not a length of time; the message has `name`.
    """
    if not isinstance(text, str) or not _RETENTION.fullmatch(text.strip().lower()):
        raise InvalidArgumentError(
            f'{name}={show_value(text)} is not a length of time: write it as "168 hours" or "7 days".'
        )
    lengths = re.findall(_LENGTH, text.lower())
    seconds = sum(float(number) * _UNITS[unit] for number, unit in lengths)
    return timedelta(seconds=min(seconds, _FOR_EVER))


def cutoff(at: datetime, retention: timedelta) -> int:
    """Return the time before which files are older than the retention at time `at`, in ms since 1970."""
    return millis(at) - retention // timedelta(milliseconds=1)


def in_words(length: timedelta) -> str:
    """Format a length of time, whole days as days: "7 days", "36 hours", "0.5 hours", "0 hours"."""
    days, rest = divmod(length, timedelta(days=1))
    hours = length / timedelta(hours=1)
    if days and not rest:
        return format_count(days, "day")
    return f"{hours:,.10g} hour" if hours == 1 else f"{hours:,.10g} hours"

"""How long a table keeps removed files and its log, and which retention VACUUM accepts."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from compaction_kit.errors import InvalidArgumentError, show_value
from compaction_kit.log.metadata import Metadata
from compaction_kit.times import millis

PROPERTY = "delta.deletedFileRetentionDuration"
# With this setting of the session, Delta refuses to read versions older than that.
GUARD = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
LOG_PROPERTY = "delta.logRetentionDuration"
_DEFAULTS = {PROPERTY: "interval 1 week", LOG_PROPERTY: "interval 30 days"}
_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
IGNORE_RETAIN = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_LENGTH = r"(\d+(?:\.\d+)?)\s*([a-z]+?)s?\b\s*"
_RETENTION = re.compile(rf"(?:interval\s+)?(?:{_LENGTH})+", re.IGNORECASE)
_HOUR = timedelta(hours=1)
_LONGEST = timedelta(days=7_000 * 365)


def table_retention(metadata: Metadata) -> timedelta:
    """Return how long a table keeps removed files: its property, or a week.

    Raises:
        InvalidArgumentError: The property is not a length of time.
    """
    return parse_retention(metadata.configuration.get(PROPERTY, _DEFAULTS[PROPERTY]))


def log_retention(metadata: Metadata) -> timedelta:
    """Return how long a table keeps its log: its property, or 30 days.

    Raises:
        InvalidArgumentError: The property is not a length of time.
    """
    return parse_retention(metadata.configuration.get(LOG_PROPERTY, _DEFAULTS[LOG_PROPERTY]))


def parse_retention(text: str) -> timedelta:
    """Parse a length of time such as "168 hours", "7 days" or "interval 1 week".

    Raises:
        InvalidArgumentError: The text is not a length of time.
    """
    is_length = isinstance(text, str) and _RETENTION.fullmatch(text.strip())
    lengths = re.findall(_LENGTH, text.lower()) if is_length else []
    if not lengths or any(unit not in _UNITS for _, unit in lengths):
        raise InvalidArgumentError(
            f'retention={show_value(text)} is not a length of time: write it as "168 hours" or "7 days".'
        )
    try:
        return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in lengths))
    except OverflowError:
        raise InvalidArgumentError(
            f"retention={show_value(text)} is too long: give a million days at most."
        ) from None


def vacuum_retention(
    metadata: Metadata, retention: str | None, conf: Callable[[str], str | None], ignores_retain: bool
) -> timedelta:
    """Return how long VACUUM keeps removed files.

    A retention longer than the table's own is always safe. Delta refuses a shorter one
    (VacuumCommandImpl.checkRetentionPeriodSafety) unless the session allows it.

    Args:
        metadata: The table's metadata.
        retention: A length of time such as "168 hours"; None for the table's own retention.
        conf: Returns the value of a setting of the session.
        ignores_retain: Whether Delta ignores RETAIN unless it is 0.

    Raises:
        InvalidArgumentError: The retention can't be parsed, or Delta would refuse or change it.
    """
    configured = table_retention(metadata)
    chosen = configured if retention is None else parse_retention(retention)
    if chosen >= configured:
        return chosen
    if _is_on(conf(_CHECK)):
        raise InvalidArgumentError(
            f'retention="{retention}" is shorter than the {hours(configured)} hours that the table keeps '
            f"removed files for, which Delta's check {_CHECK} refuses: choose that or longer, or change its "
            f"property {PROPERTY}."
        )
    # Delta would round less than half an hour to 0, which it does not ignore.
    if chosen and ignores_retain:
        raise InvalidArgumentError(
            f'retention="{retention}" would be ignored: since 4.1 Delta uses the table\'s property '
            f"{PROPERTY} ({hours(configured)} hours) unless RETAIN is 0; change the property, or set "
            f"{IGNORE_RETAIN} to false."
        )
    if chosen % _HOUR:
        raise InvalidArgumentError(
            f'retention="{retention}" is shorter than the table\'s and not a number of whole hours, which '
            "Delta would round: choose whole hours."
        )
    return chosen


def cutoff(at: datetime, retention: timedelta) -> int:
    """Return the time before which files are older than the retention at time `at`, in ms since 1970."""
    return millis(at) - to_millis(retention)


def to_millis(length: timedelta) -> int:
    """Convert a length of time to ms, 7,000 years at most: a datetime ends with the year 9999."""
    return min(length, _LONGEST) // timedelta(milliseconds=1)


def hours(length: timedelta) -> str:
    """Format a length of time in hours: "168", "0.5"."""
    return f"{length / _HOUR:g}"


def _is_on(value: str | None) -> bool:
    return (value or "true").lower() != "false"

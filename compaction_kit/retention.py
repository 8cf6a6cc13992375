"""How long a table keeps the files that it has removed."""

import re
from datetime import timedelta

from compaction_kit.errors import InvalidArgumentError, show_value
from compaction_kit.log.metadata import Metadata

PROPERTY = "delta.deletedFileRetentionDuration"
# The session's setting by which Delta refuses versions that are older than that.
GUARD = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
LOG_PROPERTY = "delta.logRetentionDuration"
_DEFAULTS = {PROPERTY: "interval 1 week", LOG_PROPERTY: "interval 30 days"}
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_LENGTH = r"(\d+(?:\.\d+)?)\s*([a-z]+?)s?\b\s*"
_RETENTION = re.compile(rf"(?:interval\s+)?(?:{_LENGTH})+", re.IGNORECASE)


def table_retention(metadata: Metadata) -> timedelta:
    """How long a table keeps removed files: by its property, or a week.

    Raises:
        InvalidArgumentError: The property is no length of time.
    """
    return parse_retention(metadata.configuration.get(PROPERTY, _DEFAULTS[PROPERTY]))


def log_retention(metadata: Metadata) -> timedelta:
    """How long a table keeps its log: by its property, or 30 days.

    Raises:
        InvalidArgumentError: The property is no length of time.
    """
    return parse_retention(metadata.configuration.get(LOG_PROPERTY, _DEFAULTS[LOG_PROPERTY]))


def parse_retention(text: str) -> timedelta:
    """A length of time such as "168 hours", "7 days" or "interval 1 week".

    Raises:
        InvalidArgumentError: It is none.
    """
    is_length = isinstance(text, str) and _RETENTION.fullmatch(text.strip())
    lengths = re.findall(_LENGTH, text.lower()) if is_length else []
    if not lengths or any(unit not in _UNITS for _, unit in lengths):
        raise InvalidArgumentError(
            f'retention={show_value(text)} is not a length of time: write it as "168 hours" or "7 days".'
        )
    try:
        return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in lengths))
    except OverflowError as error:
        raise InvalidArgumentError(
            f"retention={show_value(text)} is longer than can be reckoned with: give a million days at most."
        ) from error

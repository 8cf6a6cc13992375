"""How long a table keeps the files that it has removed."""

import re
from datetime import timedelta

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.log.metadata import Metadata

PROPERTY = "delta.deletedFileRetentionDuration"
_DEFAULT = "interval 1 week"
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_LENGTH = r"(\d+(?:\.\d+)?)\s*([a-z]+?)s?\b\s*"
_RETENTION = re.compile(rf"(?:interval\s+)?(?:{_LENGTH})+", re.IGNORECASE)


def table_retention(metadata: Metadata) -> timedelta:
    """How long a table keeps removed files: by its property, or a week.

    Raises:
        InvalidArgumentError: The property is no length of time.
    """
    return parse_retention(metadata.configuration.get(PROPERTY, _DEFAULT))


def parse_retention(text: str) -> timedelta:
    """A length of time such as "168 hours", "7 days" or "interval 1 week".

    Raises:
        InvalidArgumentError: It is none.
    """
    lengths = re.findall(_LENGTH, text.lower()) if _RETENTION.fullmatch(text.strip()) else []
    if not lengths or any(unit not in _UNITS for _, unit in lengths):
        raise InvalidArgumentError(
            f'retention="{text}" is not a length of time: write it as "168 hours" or "7 days".'
        )
    return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in lengths))

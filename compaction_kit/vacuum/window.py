"""How long removed files are kept: what Delta allows, and what it does with another wish."""

from collections.abc import Callable
from datetime import timedelta

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.log.metadata import Metadata
from compaction_kit.retention import PROPERTY, parse_retention, table_retention

CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
IGNORE = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"
Conf = Callable[[str], str | None]
_HOUR = timedelta(hours=1)


def choose_retention(metadata: Metadata, retention: str | None, conf: Conf) -> timedelta:
    """How long VACUUM shall keep removed files.

    Longer than the table's own retention is always safe. Shorter is what Delta refuses
    (VacuumCommandImpl.checkRetentionPeriodSafety), unless the session says otherwise.

    Args:
        metadata: The table's.
        retention: Such as "168 hours"; None for the table's own.
        conf: The session's settings.

    Raises:
        InvalidArgumentError: It can't be read, or Delta would not go by it.
    """
    configured = table_retention(metadata)
    if retention is None:
        return configured
    chosen = parse_retention(retention)
    if chosen >= configured:
        return chosen
    if _is_on(conf, CHECK):
        raise InvalidArgumentError(
            f'retention="{retention}" is shorter than the {hours(configured)} hours that the table keeps '
            f"removed files for, which Delta's check {CHECK} refuses: choose that or longer, or change its "
            f"property {PROPERTY}."
        )
    # From 4.1 on; rounding makes 0 of less than half an hour, and that is not what was asked for.
    if chosen and _is_on(conf, IGNORE):
        raise InvalidArgumentError(
            f'retention="{retention}" would be ignored: since 4.1 Delta goes by the table\'s property '
            f"{PROPERTY} ({hours(configured)} hours) and by no RETAIN but 0; change the property, or set "
            f"{IGNORE} to false."
        )
    if chosen % _HOUR:
        raise InvalidArgumentError(
            f'retention="{retention}" is shorter than the table\'s and not a number of whole hours, which '
            "Delta would round: choose whole hours."
        )
    return chosen


def hours(length: timedelta) -> str:
    """A length of time in hours: "168", "0.5"."""
    return f"{length / _HOUR:g}"


def _is_on(conf: Conf, key: str) -> bool:
    return (conf(key) or "true").lower() != "false"

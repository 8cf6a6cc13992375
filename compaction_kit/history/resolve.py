"""Which version a version or a time stands for."""

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import SparkSession

from compaction_kit.errors import InvalidArgumentError, show_value
from compaction_kit.log import TransactionLog
from compaction_kit.times import session_zone, show_time, to_instant


@dataclass(frozen=True)
class Resolved:
    """The commit that time travel picks.

    Attributes:
        version: Its version.
        timestamp: When it was committed, as time travel has it, in the session's time zone; None where
            its commit isn't in the log any more.
        in_commit: Whether the commit itself says when, by its in-commit timestamp; if not, that is the
            time of its file, which a copy of the table may have changed.
        superseded_at: When the next version was committed: any time before stands for this version.
            None for the latest.
    """

    version: int
    timestamp: datetime | None
    in_commit: bool
    superseded_at: datetime | None

    def __repr__(self) -> str:
        by = "by its in-commit timestamp" if self.in_commit else "by the time of its file"
        when = f"committed {_shown(self.timestamp)} {by}" if self.timestamp else "its commit is gone"
        until = f", superseded {_shown(self.superseded_at)}" if self.superseded_at else ", the latest"
        return f"version {self.version}: {when}{until}"


def resolve(
    log: TransactionLog,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    spark: SparkSession | None = None,
) -> Resolved:
    """The commit that a version or a time stands for; the latest if neither is given.

    Args:
        log: The table's log.
        version: A version.
        timestamp: Instead of it a time: the last version committed by then. Without a zone it is in
            the session's; see `times.to_instant`.
        spark: Whose time zone counts; None for the active session's, else the machine's.

    Raises:
        InvalidArgumentError: The version can't be read back, no version has that time, or both were
            given.
    """
    if version is not None and timestamp is not None:
        raise InvalidArgumentError(
            f"version={version!r} and timestamp={show_value(timestamp)} were both given: "
            "choose one of the two."
        )
    zone = session_zone(spark)
    if timestamp is None:
        found = log.segment(version).version
    else:
        found = log.version_at(to_instant(timestamp, "timestamp", spark))
    told = log.commits()
    versions = told["version"].to_pylist()
    if found not in versions:
        return Resolved(found, None, False, None)
    position = versions.index(found)
    near = log.commit_times()[position : position + 2].to_pylist()
    at, *after = (moment.astimezone(zone) for moment in near)
    return Resolved(found, at, log.has_in_commit_timestamp(found), after[0] if after else None)


def _shown(moment: datetime) -> str:
    return show_time(moment, "milliseconds")

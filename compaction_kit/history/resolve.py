"""Which version a version or a time stands for."""

from dataclasses import dataclass
from datetime import UTC, datetime

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.log import TransactionLog


@dataclass(frozen=True)
class Resolved:
    """The commit that time travel picks.

    Attributes:
        version: Its version.
        timestamp: When it was committed (UTC), as time travel has it; None where its commit isn't in
            the log any more.
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
    log: TransactionLog, version: int | None = None, timestamp: datetime | str | None = None
) -> Resolved:
    """The commit that a version or a time stands for; the latest if neither is given.

    Args:
        log: The table's log.
        version: A version.
        timestamp: Instead of it a time (UTC, if it has no zone): the last version committed by then.

    Raises:
        InvalidArgumentError: The version can't be read back, no version has that time, or both were
            given.
    """
    if version is not None and timestamp is not None:
        raise InvalidArgumentError(
            f'version={version} and timestamp="{timestamp}" were both given: choose one of the two.'
        )
    found = log.segment(version).version if timestamp is None else log.version_at(timestamp)
    told = log.commits()
    versions = told["version"].to_pylist()
    if found not in versions:
        return Resolved(found, None, False, None)
    position = versions.index(found)
    times = log.commit_times()
    after = times[position + 1].as_py() if position + 1 < len(times) else None
    return Resolved(found, times[position].as_py(), log.has_in_commit_timestamp(found), after)


def _shown(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if moment else ""

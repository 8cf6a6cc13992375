"""Which files of the log a version is read from."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

from compaction_kit.errors import CorruptLogError, InvalidArgumentError
from compaction_kit.log.names import Kind, LogFile


@dataclass(frozen=True)
class Segment:
    """A checkpoint (its parts, or none) and the commits after it, up to and with `version`."""

    version: int
    checkpoint: tuple[LogFile, ...]
    commits: tuple[LogFile, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes to read."""
        return sum(file.size_bytes for file in self.checkpoint + self.commits)


def find_segment(files: Sequence[LogFile], version: int | None = None) -> Segment:
    """The newest complete checkpoint at or before a version, and every commit after it.

    `_last_checkpoint` isn't asked: it is a hint that may be missing, stale or damaged, and the
    listing says the same for certain (protocol, "Last Checkpoint File").

    Args:
        files: The listing of `_delta_log`.
        version: The version to read; None for the latest.

    Raises:
        InvalidArgumentError: The version isn't there yet, or can't be read back any more.
        CorruptLogError: No version can be read, or a commit is missing in between.
    """
    commits = {f.version: f for f in files if f.kind is Kind.COMMIT and f.version is not None}
    checkpoints = complete_checkpoints(files)
    if not commits and not checkpoints:
        raise CorruptLogError(
            "The _delta_log folder holds no commit and no checkpoint: no version can be read."
        )
    latest = max([*commits, *checkpoints])
    target = latest if version is None else whole_version(version)
    if not 0 <= target <= latest:
        raise InvalidArgumentError(f"version={target} does not exist: the latest is {latest}.")
    start = max((v for v in checkpoints if v <= target), default=-1)
    needed = range(start + 1, target + 1)
    missing = next((v for v in needed if v not in commits), None)
    if missing is not None:
        raise _unreadable(target, missing, start, version is None, commits, checkpoints)
    return Segment(target, checkpoints.get(start, ()), tuple(commits[v] for v in needed))


def whole_version(version: int) -> int:
    """A version as an argument gives it.

    Raises:
        InvalidArgumentError: It is no whole number.
    """
    if isinstance(version, bool) or not isinstance(version, Integral):
        raise InvalidArgumentError(f"version={version!r} is not a version: give a whole number.")
    return int(version)


def extend_segment(base: Segment, files: Sequence[LogFile], version: int) -> Segment | None:
    """A segment that reads on from a version that has been read already.

    Args:
        base: What that version was read from.
        files: The listing of `_delta_log` now.
        version: The version to read.

    Returns:
        None where it can't be: the version is older, a commit is missing in between, or the
        files that the base ends with are not the same any more.
    """
    commits = {f.version: f for f in files if f.kind is Kind.COMMIT}
    last = base.commits[-1:] or base.checkpoint
    needed = range(base.version + 1, version + 1)
    if version < base.version or not set(last) <= set(files) or not all(v in commits for v in needed):
        return None
    return Segment(version, base.checkpoint, base.commits + tuple(commits[v] for v in needed))


def complete_checkpoints(files: Sequence[LogFile]) -> dict[int, tuple[LogFile, ...]]:
    """The files of one complete checkpoint for each version that has one.

    A multi-part checkpoint that lacks a part does not count, nor does an empty file: Delta passes
    over both. Where a version has several, the single file is preferred: it is one read.
    """
    found: dict[int, tuple[LogFile, ...]] = {}
    parts: dict[tuple[int, int], dict[int, LogFile]] = defaultdict(dict)
    for file in files:
        if file.version is None or not file.size_bytes:
            continue
        if file.kind is Kind.CHECKPOINT_PART and file.part and file.num_parts:
            parts[file.version, file.num_parts][file.part] = file
        elif file.kind is Kind.CHECKPOINT or (file.kind is Kind.V2_CHECKPOINT and file.version not in found):
            found[file.version] = (file,)
    for (version, num_parts), have in parts.items():
        if version not in found and set(have) == set(range(1, num_parts + 1)):
            found[version] = tuple(have[part] for part in sorted(have))
    return found


def _unreadable(
    target: int,
    missing: int,
    start: int,
    is_latest: bool,
    commits: dict[int, LogFile],
    checkpoints: dict[int, tuple[LogFile, ...]],
) -> CorruptLogError | InvalidArgumentError:
    trimmed = start < 0 and not any(v < missing for v in commits)
    if trimmed and checkpoints and not is_latest:
        earliest = min(checkpoints)
        return InvalidArgumentError(
            f"version={target} can't be read back: the log was cleaned up to version {earliest}; choose "
            f"{earliest} or later."
        )
    return CorruptLogError(
        f"Version {target} can't be read: the log lacks the commit of version {missing} and no complete "
        "checkpoint replaces it; restore that file from a backup."
    )

"""Versions that a vacuum shall leave readable."""

from collections.abc import Sequence

import pyarrow as pa

from compaction_kit.errors import InvalidArgumentError, show_value
from compaction_kit.history.readable import LOG_GONE, Readability
from compaction_kit.sizes import format_count

_MOST_NAMED = 3


def check_versions(readability: Readability, versions: Sequence[int] | None) -> tuple[int, ...]:
    """The versions to keep, each once, in order.

    Raises:
        InvalidArgumentError: They aren't whole numbers, don't exist, or can't be read already.
    """
    if versions is None:
        return ()
    if isinstance(versions, str) or not hasattr(versions, "__iter__"):
        raise InvalidArgumentError(f"keep_versions={versions!r} is no list of versions: write it as [3, 5].")
    wanted = [_number(version) for version in versions]
    for version in wanted:
        _check(readability, version)
    return tuple(sorted(set(wanted)))


def needed_by(readability: Readability, versions: Sequence[int]) -> pa.Array:
    """The paths of all files that some versions need."""
    needed = [readability.needs.of_version(version) for version in versions]
    return pa.concat_arrays(
        [chunk for paths in needed for chunk in paths.chunks] or [pa.array([], pa.string())]
    )


def _number(version: object) -> int:
    if isinstance(version, bool) or not hasattr(version, "__index__"):
        raise InvalidArgumentError(
            f"keep_versions has {version!r}, which is no version: give whole numbers, such as [3, 5]."
        )
    return int(version.__index__())


def _check(readability: Readability, version: int) -> None:
    needs = readability.needs
    if not needs.first <= version <= needs.latest:
        raise InvalidArgumentError(
            f"keep_versions has {version}, which the log doesn't tell of: it has {needs.first} to "
            f"{needs.latest}."
        )
    if readability.statuses()[version - needs.first] == LOG_GONE:
        raise InvalidArgumentError(
            f"keep_versions has {version}, which can't be read already: its commit is gone from the log; "
            "leave it out."
        )
    missing = set(needs.of_version(version).to_pylist()) & set(readability.missing.to_pylist())
    if missing:
        named = ", ".join(map(show_value, sorted(missing)[:_MOST_NAMED]))
        more = len(missing) - _MOST_NAMED
        raise InvalidArgumentError(
            f"keep_versions has {version}, which can't be read already: "
            f"{format_count(len(missing), 'file')} that it needs {'is' if len(missing) == 1 else 'are'} gone "
            f"({named}{f' and {more:,} more' if more > 0 else ''}); leave it out."
        )

"""What a vacuum costs: versions that can't be read any more, and files that streams have yet to read."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException

from compaction_kit.handle import Handle
from compaction_kit.history.content import CLAIMED, read_content
from compaction_kit.history.readable import BLOCKED, YES, Needs, Readability
from compaction_kit.retention import GUARD
from compaction_kit.text import format_count
from compaction_kit.vacuum.decide import Deletion

# Whether VACUUM commits its start and its end, which it does on a local disk unless this says no.
_LOGGING = "spark.databricks.delta.vacuum.logging.enabled"
_MOST_NAMED = 5


@dataclass(frozen=True, repr=False)
class Preview(Deletion):
    """What VACUUM deletes, and which versions that costs.

    Attributes:
        versions: Every version that the log tells of: version (int64), timestamp (UTC), readable and
            readable_after (string), as `Table.versions()` says it.
        versions_lost: Those that can be read now and not after. The latest is one of them if it is
            older than the retention, for VACUUM commits two versions on top of it and then Delta's
            guard refuses it. What the guard refuses merely as time goes by until `at` is not
            the vacuum's cost, and isn't counted.
        blocked_versions_lost: Those that Delta's guard refuses now, and that would lose files: with the
            guard off they can be read now and not after.
        content_survives_as: For versions lost, the version that can be read after and is known to
            have the same content.
        content_survives_by: How that is known: "identical files", "says OPTIMIZE, row counts agree",
            "equal fingerprints"; see `content.read_content`.
        content_claimed_as: For versions lost without such a one, the version that can be read after
            and that its writer claims to have the same content.
        warnings: What to look at first: running streams that would lose files, versions that are
            kept and yet refused.
    """

    versions: pa.Table
    versions_lost: list[int]
    blocked_versions_lost: list[int]
    content_survives_as: dict[int, int]
    content_survives_by: dict[int, str]
    content_claimed_as: dict[int, int]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Stream:
    """A running query and where it is in a table.

    Attributes:
        name: What it is called, or its id.
        version: The version that it reads next; None while it hasn't said.
        is_starting: Whether it still reads the files that were live at that version, as a new
            stream does first.
    """

    name: str
    version: int | None
    is_starting: bool


def with_cost(deletion: Deletion, state: Readability, verify: bool) -> Preview:
    """What a deletion costs.

    Args:
        deletion: What goes.
        state: Which versions can be read before.
        verify: Compare the rows of what commits replaced that only claim to have changed no data.
    """
    handle, needs = deletion.handle, state.needs
    going = deletion.files["path"].combine_chunks()
    # VACUUM's own commits make the latest version an older one, which the guard may refuse.
    commits = not deletion.is_empty and (handle.conf(_LOGGING) or "true").lower() != "false"
    before, after = state.statuses(), state.statuses(gone=going, superseded=commits)
    lost = needs.versions[(before == YES) & (after != YES)].tolist()
    has_all, loses = needs.count(state.missing) == 0, needs.count(going) > 0
    readable = needs.versions[after == YES].tolist()
    survives_as, survives_by, claimed_as = _survivors(handle, needs, lost, readable, commits, verify)
    refused = [version for version in deletion.keep_versions if after[version - needs.first] == BLOCKED]
    streams = running_streams(handle, deletion.table_id)
    return Preview(
        **vars(deletion),
        versions=state.compared(before, after),
        versions_lost=lost,
        blocked_versions_lost=needs.versions[(before == BLOCKED) & has_all & loses].tolist(),
        content_survives_as=survives_as,
        content_survives_by=survives_by,
        content_claimed_as=claimed_as,
        warnings=(*_refused(refused), *_at_risk(streams, needs, going)),
    )


def running_streams(handle: Handle, table_id: str) -> list[Stream]:
    """The session's streams that read a table, by their last progress.

    Args:
        handle: The table.
        table_id: The id in its metadata, which streams know it by.
    """
    try:
        queries = [] if handle.session is None else list(handle.session.streams.active)
    except PySparkException:
        return []
    streams = []
    for query in queries:
        progress = query.lastProgress
        # One that hasn't finished a batch doesn't say what it reads.
        for source in [] if progress is None else json.loads(progress.json)["sources"]:
            offset = _offset(source)
            # DeltaSourceOffset's name for the table's id; a first batch may have no offset yet.
            known = offset.get("reservoirId")
            is_described = source.get("description") == f"DeltaSource[file:{handle.path}]"
            if known == table_id if known else is_described:
                name, version = query.name or str(query.id), offset.get("reservoirVersion")
                streams.append(Stream(name, version, bool(offset.get("isStartingVersion"))))
    return streams


def spent_versions(lost: Sequence[int], survives_as: Collection[int], now: int) -> str:
    """How many of the versions readable before are lost, and how much of their content isn't.

    Args:
        lost: The versions lost.
        survives_as: Those of them whose content can be read under another number.
        now: How many versions could be read before.
    """
    readable = format_count(now, "readable version")
    if not lost:
        return f"none of {readable}"
    whose = "its content" if len(lost) == 1 else "their content"
    if len(survives_as) < len(lost):
        whose = f"the content of {len(survives_as):,}"
    return f"{len(lost):,} of {readable}{f', not {whose},' if survives_as else ''}"


def ranges(versions: Sequence[int]) -> str:
    """Versions for people: "0 to 3, 7"; the first of many ranges."""
    array = np.array(versions)
    runs = np.split(array, np.flatnonzero(np.diff(array) != 1) + 1)
    shown = [f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs[:_MOST_NAMED]]
    more = sum(map(len, runs[_MOST_NAMED:]))
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _survivors(
    handle: Handle, needs: Needs, lost: list[int], readable: list[int], commits: bool, verify: bool
) -> tuple[dict[int, int], dict[int, str], dict[int, int]]:
    """The latest version of the same content for each version lost; how that is known; what is only claimed.

    `readable` are the versions that can be read after, `commits` is whether VACUUM commits two more.
    """
    if not lost:
        return {}, {}, {}
    content = read_content(handle, verify)
    groups = content.groups.tolist()
    instead = {groups[version - needs.first]: version for version in readable}
    if commits:
        # VACUUM's own commits have the content of the latest version.
        instead.setdefault(groups[-1], needs.latest + 2)
    others = {version: instead.get(groups[version - needs.first]) for version in lost}
    survivors = {version: other for version, other in others.items() if other is not None}
    evidence = {
        version: content.evidence(version, min(other, needs.latest)) or ""
        for version, other in survivors.items()
    }
    rest = [version for version in lost if version not in survivors and any(content.claims)]
    claimed = {
        version: [other for other in readable if content.claim(version, other) == CLAIMED] for version in rest
    }
    return survivors, evidence, {version: others[-1] for version, others in claimed.items() if others}


def _refused(kept: list[int]) -> list[str]:
    """A sentence if Delta's guard refuses versions that are kept, files or no files."""
    if not kept:
        return []
    which = f"Version {kept[0]} is" if len(kept) == 1 else f"Versions {ranges(kept)} are"
    return [
        f"{which} kept, and older than the retention, so that Delta's guard refuses to read what is "
        f"there: set {GUARD} to false to read it."
    ]


def _at_risk(streams: Sequence[Stream], needs: Needs, going: pa.Array) -> list[str]:
    """A sentence for each stream that has files still to read that would go."""
    hits = needs.files.filter(pc.is_in(needs.files["path"], value_set=going))
    sentences = []
    for stream in streams:
        if stream.version is None:
            sentences.append(
                f"The stream {stream.name} reads this table and hasn't said how far it is: wait for it."
            )
            continue
        ahead = pc.greater_equal(hits["added"], stream.version)
        if stream.is_starting:
            ahead = pc.or_(ahead, pc.greater(hits["removed"], stream.version))
        number = pc.count_distinct(hits.filter(ahead)["path"]).as_py()
        if number:
            sentences.append(
                f"The stream {stream.name} is at version {stream.version} and may still have to read "
                f"{format_count(number, 'file')} that would go: let it catch up first."
            )
    return sentences


def _offset(source: dict[str, Any]) -> dict[str, Any]:
    offset = source.get("endOffset") or {}
    return json.loads(offset) if isinstance(offset, str) else offset

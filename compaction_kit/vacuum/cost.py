"""The cost of a vacuum: versions that can no longer be read, and files that streams haven't read yet."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException

from compaction_kit.compat import last_progress
from compaction_kit.handle import Handle
from compaction_kit.history.content import CLAIMED, read_content
from compaction_kit.history.readable import BLOCKED, YES, Needs, Readability
from compaction_kit.retention import GUARD
from compaction_kit.text import format_count
from compaction_kit.vacuum.decide import Deletion

# Whether VACUUM commits its start and its end; on a local disk it does by default.
_LOGGING = "spark.databricks.delta.vacuum.logging.enabled"
_MOST_NAMED = 5


@dataclass(frozen=True, repr=False)
class Preview(Deletion):
    """What VACUUM deletes, and which versions can no longer be read afterwards.

    Attributes:
        versions: The versions in the log: version, timestamp, readable and readable_after, with the values
            of `Table.versions()`.
        versions_lost: The versions that can be read now but not afterwards. This includes the latest if it
            is older than the retention: VACUUM commits two versions after it, and then Delta's guard
            refuses it. Versions that the guard refuses only because time passes until `at` don't count.
        blocked_versions_lost: The versions that Delta's guard refuses now and that would lose files: with
            the guard off they can be read now but not afterwards.
        content_survives_as: For versions lost, a version that can be read afterwards and is known to have
            the same content.
        content_survives_by: How that is known: "identical files", "says OPTIMIZE, row counts agree",
            "equal fingerprints"; see `content.read_content`.
        content_claimed_as: For other versions lost, a version that can be read afterwards and that its
            writer claims to have the same content.
        warnings: Sentences about running streams that would lose files, and about kept versions that
            Delta's guard refuses.
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
    """A running streaming query and its position in a table.

    Attributes:
        name: The query's name, or its id.
        version: The version that it reads next; None as long as it hasn't reported one.
        is_starting: Whether it still reads the files that were live at that version, as a new stream
            does first.
    """

    name: str
    version: int | None
    is_starting: bool


def with_cost(deletion: Deletion, state: Readability, verify: bool) -> Preview:
    """Add the cost to a deletion.

    Args:
        deletion: What would be deleted.
        state: Which versions can be read before.
        verify: Whether to compare the rows of files that commits replaced which claim to change no data.
    """
    handle, needs = deletion.handle, state.needs
    deleted = deletion.files["path"].combine_chunks()
    # After VACUUM's own commits the latest version is an older one, which the guard may refuse.
    commits = not deletion.is_empty and (handle.conf(_LOGGING) or "true").lower() != "false"
    before, after = state.statuses(), state.statuses(deleted=deleted, superseded=commits)
    lost = needs.versions[(before == YES) & (after != YES)].tolist()
    has_all, loses = needs.count(state.missing) == 0, needs.count(deleted) > 0
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
        warnings=(*_refused(refused), *_at_risk(streams, needs, deleted)),
    )


def running_streams(handle: Handle, table_id: str) -> list[Stream]:
    """Return the session's streams that read a table, by their last progress.

    Args:
        handle: The table.
        table_id: The id in its metadata, which streams report.
    """
    try:
        queries = [] if handle.session is None else list(handle.session.streams.active)
    except PySparkException:
        return []
    streams = []
    for query in queries:
        # A query that hasn't finished a batch doesn't report its sources.
        for source in (last_progress(query) or {"sources": []})["sources"]:
            offset = _offset(source)
            # The table's id in a DeltaSourceOffset; a first batch may have no offset yet.
            known = offset.get("reservoirId")
            is_described = source.get("description") == f"DeltaSource[{handle.uri}]"
            if known == table_id if known else is_described:
                name, version = query.name or str(query.id), offset.get("reservoirVersion")
                streams.append(Stream(name, version, bool(offset.get("isStartingVersion"))))
    return streams


def spent_versions(lost: Sequence[int], survives_as: Collection[int], now: int) -> str:
    """Say how many of the readable versions are lost, and for how many the content isn't.

    Args:
        lost: The versions lost.
        survives_as: Those whose content can be read as another version.
        now: The number of versions that can be read before.
    """
    readable = format_count(now, "readable version")
    if not lost:
        return f"none of {readable}"
    whose = "its content" if len(lost) == 1 else "their content"
    if len(survives_as) < len(lost):
        whose = f"the content of {len(survives_as):,}"
    return f"{len(lost):,} of {readable}{f', not {whose},' if survives_as else ''}"


def ranges(versions: Sequence[int]) -> str:
    """Write versions as ranges, such as "0 to 3, 7", and count those after the first five ranges."""
    array = np.array(versions)
    runs = np.split(array, np.flatnonzero(np.diff(array) != 1) + 1)
    shown = [f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs[:_MOST_NAMED]]
    more = sum(map(len, runs[_MOST_NAMED:]))
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _survivors(
    handle: Handle, needs: Needs, lost: list[int], readable: list[int], commits: bool, verify: bool
) -> tuple[dict[int, int], dict[int, str], dict[int, int]]:
    """Return content_survives_as, content_survives_by and content_claimed_as of `Preview`.

    `readable` are the versions that can be read afterwards, `commits` is whether VACUUM commits two more.
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
    """Return a sentence if Delta's guard refuses versions that are kept."""
    if not kept:
        return []
    which = f"Version {kept[0]} is" if len(kept) == 1 else f"Versions {ranges(kept)} are"
    return [
        f"{which} kept, but older than the retention, so that Delta's guard refuses to read "
        f"{'it' if len(kept) == 1 else 'them'}: set {GUARD} to false to read what is kept."
    ]


def _at_risk(streams: Sequence[Stream], needs: Needs, deleted: pa.Array) -> list[str]:
    """Return a sentence for each stream that may still have to read files that would be deleted."""
    hits = needs.files.filter(pc.is_in(needs.files["path"], value_set=deleted))
    sentences = []
    for stream in streams:
        if stream.version is None:
            sentences.append(
                f"The stream {stream.name} reads this table and hasn't reported its version yet: wait for it."
            )
            continue
        ahead = pc.greater_equal(hits["added"], stream.version)
        if stream.is_starting:
            ahead = pc.or_(ahead, pc.greater(hits["removed"], stream.version))
        number = pc.count_distinct(hits.filter(ahead)["path"]).as_py()
        if number:
            sentences.append(
                f"The stream {stream.name} is at version {stream.version} and may still have to read "
                f"{format_count(number, 'file')} that would be deleted: let it catch up first."
            )
    return sentences


def _offset(source: dict[str, Any]) -> dict[str, Any]:
    offset = source.get("endOffset") or {}
    return json.loads(offset) if isinstance(offset, str) else offset

"""The cost of a vacuum: versions that can no longer be read, and files that streams haven't read yet."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.compat import last_progress
from compaction_kit.handle import Handle
from compaction_kit.history.content import read_content
from compaction_kit.history.readable import BLOCKED, YES, FilesByVersion, Readability
from compaction_kit.retention import GUARD
from compaction_kit.text import format_count

# Whether VACUUM commits its start and its end; on a local disk it does by default.
_LOGGING = "spark.databricks.delta.vacuum.logging.enabled"
_MOST_NAMED = 5


def cost_of(
    handle: Handle, state: Readability, deleted: pa.Array, keep: Sequence[int], is_empty: bool
) -> dict[str, Any]:
    """Return the cost of deleting paths as fields of `VacuumPlan`; with `is_empty` no folder goes either."""
    needs = state.needs
    # After VACUUM's own commits the latest version is an older one, which Delta's guard may refuse.
    commits = not is_empty and (handle.conf(_LOGGING) or "true").lower() != "false"
    before, after = state.statuses(), state.statuses(deleted=deleted, superseded=commits)
    has_all, loses = needs.count(state.missing) == 0, needs.count(deleted) > 0
    lost = needs.versions[(before == YES) & (after != YES)].tolist()
    survives_as, survives_by = dict[int, int](), dict[int, str]()
    if lost:
        content = read_content(handle, needs)
        groups = dict(zip(needs.versions.tolist(), content.groups.tolist(), strict=True))
        instead = {groups[version]: version for version in needs.versions[after == YES].tolist()}
        if commits:
            # VACUUM's own commits have the content of the latest version.
            instead.setdefault(groups[needs.latest], needs.latest + 2)
        survives_as = {version: instead[groups[version]] for version in lost if groups[version] in instead}
        for version, other in survives_as.items():
            survives_by[version] = content.evidence(version, min(other, needs.latest)) or ""
    times = pa.array(state.times, mask=state.times == 0).cast(pa.timestamp("ms", "UTC"))
    versions = {"version": needs.versions, "timestamp": times, "readable": before, "readable_after": after}
    return {
        "versions": pa.table(versions),
        "versions_lost": lost,
        "blocked_versions_lost": needs.versions[(before == BLOCKED) & has_all & loses].tolist(),
        "content_survives_as": survives_as,
        "content_survives_by": survives_by,
        "warnings": (
            *_kept_but_refused([version for version in keep if after[version - needs.first] == BLOCKED]),
            *_streams_at_risk(handle, needs, deleted),
        ),
    }


def ranges(versions: Sequence[int]) -> str:
    """Write versions as ranges, such as "0 to 3, 7", and count those after the first five ranges."""
    array = np.array(versions)
    runs = np.split(array, np.flatnonzero(np.diff(array) != 1) + 1)
    shown = [f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs[:_MOST_NAMED]]
    more = sum(map(len, runs[_MOST_NAMED:]))
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _kept_but_refused(versions: Sequence[int]) -> list[str]:
    if not versions:
        return []
    which, them = (f"Version {versions[0]} is", "it")
    if len(versions) > 1:
        which, them = f"Versions {ranges(versions)} are", "them"
    return [
        f"{which} kept, but older than the retention, so that Delta's guard refuses to read {them}: set "
        f"{GUARD} to false to read what is kept."
    ]


def _streams_at_risk(handle: Handle, needs: FilesByVersion, deleted: pa.Array) -> list[str]:
    """Return a sentence for each stream of the session that may still have to read deleted files."""
    queries = [] if handle.session is None else handle.session.streams.active
    hits = needs.files.filter(pc.is_in(needs.files["path"], value_set=deleted))
    sentences = []
    for query in queries:
        name = query.name or str(query.id)
        # A query that hasn't finished a batch doesn't report its sources.
        for source in (last_progress(query) or {"sources": []})["sources"]:
            offset = source.get("endOffset")
            # A DeltaSourceOffset has the table's id; other sources' offsets may be numbers.
            if not isinstance(offset, dict) or offset.get("reservoirId") != needs.snapshot.metadata.id:
                continue
            version = offset["reservoirVersion"]
            ahead = pc.greater_equal(hits["added"], version)
            if offset.get("isStartingVersion"):
                # A new stream first reads the files that were live at that version.
                ahead = pc.or_(ahead, pc.greater(hits["removed"], version))
            if number := pc.count_distinct(hits.filter(ahead)["path"]).as_py():
                sentences.append(
                    f"The stream {name} is at version {version} and may still have to read "
                    f"{format_count(number, 'file')} that would be deleted: let it catch up first."
                )
    return sentences

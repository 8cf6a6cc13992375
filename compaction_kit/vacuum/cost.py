"""The cost of a vacuum: versions that can no longer be read, and where their content survives."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.history.content import read_content
from compaction_kit.history.readable import BLOCKED, YES, FilesByVersion
from compaction_kit.history.versions import read_log_expiry
from compaction_kit.log.listing import Kind
from compaction_kit.retention import GUARD, LOG_PROPERTY, cleans_log

# Whether VACUUM commits its start and its end; by default on VacuumCommandImpl.supportedFsForLogging alone.
_LOGGING = "spark.databricks.delta.vacuum.logging.enabled"
_LOGGED = ("wasbs", "wasbss", "abfs", "abfss", "adl", "gs", "file", "hdfs")
_MOST_NAMED = 5


def cost_of(
    needs: FilesByVersion, deleted: pa.Array, keep: Sequence[int], at: datetime, is_empty: bool
) -> dict[str, Any]:
    """Return the cost of deleting paths as fields of `VacuumPlan`; with `is_empty` no folder goes either."""
    # After VACUUM's own commits the latest version is an older one, which Delta's guard may refuse.
    logs = needs.handle.conf(_LOGGING) or str(needs.handle.uri.partition(":")[0] in _LOGGED)
    commits = not is_empty and logs.lower() != "false"
    before, after = needs.statuses(), needs.statuses(deleted=deleted, superseded=commits)
    lost = needs.versions[(before == YES) & (after != YES)].tolist()
    survives_as, survives_by = dict[int, int](), dict[int, str]()
    if lost:
        content = read_content(needs)
        groups = dict(zip(needs.versions.tolist(), content.groups.tolist(), strict=True))
        instead = {groups[version]: version for version in needs.versions[after == YES].tolist()}
        if commits and before[-1] == YES:
            # VACUUM's own commits have the content of the latest version.
            instead.setdefault(groups[needs.latest], needs.latest + 2)
        survives_as = {version: instead[groups[version]] for version in lost if groups[version] in instead}
        for version, other in survives_as.items():
            survives_by[version] = content.evidence(version, min(other, needs.latest)) or ""
    times = pa.array(needs.times, mask=~needs.has_commit).cast(pa.timestamp("ms", "UTC"))
    versions = {"version": needs.versions, "timestamp": times, "readable": before, "readable_after": after}
    return {
        "versions": pa.table(versions),
        "versions_lost": lost,
        "content_survives_as": survives_as,
        "content_survives_by": survives_by,
        "warning": _warning(needs, keep, after, at),
    }


def _warning(needs: FilesByVersion, keep: Sequence[int], after: np.ndarray, at: datetime) -> str:
    sentences = []
    if refused := [version for version in keep if after[version - needs.first] == BLOCKED]:
        sentences.append(
            f"{_which(refused)} kept, but older than the retention: to read what is kept, set {GUARD} to "
            "false, as Delta's guard refuses it."
        )
    if keep and cleans_log(needs.snapshot.metadata):
        commits = read_log_expiry(needs.handle).filter(pc.field("kind") == Kind.COMMIT.value).to_pylist()
        if gone := sorted({row["version"] for row in commits if row["expires"] <= at}.intersection(keep)):
            sentences.append(
                f"{_which(gone)} kept, but in commits older than {LOG_PROPERTY}: Delta may delete these after "
                "the next checkpoint, which VACUUM's own commits may write, and then what is kept can't be "
                "read; set that property to a longer time first."
            )
    return " ".join(sentences)


def _which(versions: Sequence[int]) -> str:
    return f"Version {versions[0]} is" if len(versions) == 1 else f"Versions {ranges(versions)} are"


def ranges(versions: Sequence[int]) -> str:
    """Write versions as ranges, such as "0 to 3, 7", and count those after the first five ranges."""
    array = np.array(versions)
    runs = np.split(array, np.flatnonzero(np.diff(array) != 1) + 1)
    shown = [f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs[:_MOST_NAMED]]
    more = sum(map(len, runs[_MOST_NAMED:]))
    return ", ".join(shown) + (f" and {more:,} more" if more else "")

"""Sort out which files VACUUM takes, and why it leaves the others."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.folder import Folder
from compaction_kit.log.metadata import Metadata
from compaction_kit.log.paths import is_within
from compaction_kit.vacuum.lite import lite_candidates
from compaction_kit.vacuum.references import References

FULL, LITE = "FULL", "LITE"
NEEDED = "needed by a kept version"


@dataclass(frozen=True)
class SortedOut:
    """Which files go, and which stay.

    Attributes:
        going: Those that go, as `Folder.files` has them, by path.
        stays: The others, with a column more: reason.
        gone_already: Paths that LITE would take, had they not gone before.
    """

    going: pa.Table
    stays: pa.Table
    gone_already: pa.Array


def sort_out(
    table: Path,
    metadata: Metadata,
    folder: Folder,
    references: References,
    wanted: pa.Array,
    mode: str,
    cutoff: int,
) -> SortedOut:
    """Say of every file whether it goes, and why if not.

    Args:
        table: The table's folder.
        metadata: Of the latest version.
        folder: What is in it.
        references: What the latest version says of files.
        wanted: The paths that versions to be kept need.
        mode: "FULL" or "LITE".
        cutoff: What is removed or written from then on stays, ms since 1970.
    """
    files = folder.files
    paths = files["path"].combine_chunks()
    young = references.young(cutoff)["path"].combine_chunks()
    # The first of these that is so says why a file stays.
    reasons = [
        ("live", pc.is_in(paths, value_set=references.live)),
        ("removed less long ago", pc.is_in(paths, value_set=young)),
    ]
    gone_already = pa.array([], pa.string())
    if mode == LITE:
        considered = lite_candidates(table, metadata, cutoff)
        reasons.append(("not among what LITE looks at", pc.invert(pc.is_in(paths, value_set=considered))))
        spoken_for = pa.concat_arrays([references.live, young, paths])
        gone_already = considered.filter(pc.invert(pc.is_in(considered, value_set=spoken_for)))
    else:
        is_young = pc.greater_equal(files["modification_time"], cutoff)
        reasons.append(("written less long ago", is_young.combine_chunks()))
    reasons.append((NEEDED, pc.is_in(paths, value_set=wanted)))
    if folder.links:
        needed = pa.concat_arrays([references.live, young, wanted])
        reasons += _by_links(table, paths.to_pylist(), needed.to_pylist())
    reasons += [
        # Hadoop takes what is before the colon for a scheme, and VACUUM breaks off there: at a path that
        # begins so, and at a file whose checksum it looks for (ChecksumFileSystem.getChecksumFile).
        ("a colon in its name", pc.match_substring_regex(paths, "^[^/]*:|:[^/]*$")),
    ]
    masks = [mask.to_numpy(zero_copy_only=False) for _, mask in reasons]
    numbers = np.select(masks, range(len(reasons)), default=-1)
    stays = files.filter(pa.array(numbers >= 0))
    names = pa.array([name for name, _ in reasons]).take(pa.array(numbers[numbers >= 0]))
    return SortedOut(
        files.filter(pa.array(numbers < 0)).sort_by("path"),
        stays.append_column("reason", names),
        gone_already,
    )


def _by_links(table: Path, paths: list[str], needed: list[str]) -> list[tuple[str, pa.Array]]:
    """Which files VACUUM takes though a link leads to them: from elsewhere, or from a path that is needed."""
    root = os.path.realpath(table)
    kept = {os.path.realpath(table / path) for path in needed}
    # A link to a file is deleted itself, and what it leads to stays.
    folders = [os.path.realpath(table / os.path.dirname(path)) for path in paths]
    outside = [not is_within(folder, root) for folder in folders]
    real = [f"{folder}/{os.path.basename(path)}" for folder, path in zip(folders, paths, strict=True)]
    return [
        ("outside of the table's folder, by a link", pa.array(outside, pa.bool_())),
        ("needed by another path, by a link", pa.array([path in kept for path in real], pa.bool_())),
    ]

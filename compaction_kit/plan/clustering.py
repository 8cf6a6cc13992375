"""The cubes of a clustered table: which files OPTIMIZE clusters again, why, and what more appends cost."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import DAMAGE, CorruptLogError, first_line
from compaction_kit.files import Files
from compaction_kit.log.paths import one_array
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.plan.order import state_order
from compaction_kit.plan.packing import Packer, Packing, num_sorted_files
from compaction_kit.plan.predict import count_rows
from compaction_kit.plan.thresholds import CubeSizes, SessionRules

# Why a file is rewritten or not, in `Clustering.states`.
NEW, PARTIAL, COMPLETE, SINGLE = "new", "partial cube", "complete cube", "single cube"
OTHER_COLUMNS, OTHER_PROVIDER = "other columns", "other provider"
# Files that a purge doesn't consider.
CLEAN = "nothing to purge"
# The columns of `Clustering.cubes`.
CUBES = pa.schema(
    {
        "cube_id": pa.string(),
        "columns": pa.list_(pa.string()),
        **dict.fromkeys(("num_files", "size_bytes", "logical_bytes"), pa.int64()),
        "state": pa.string(),
        "is_rewritten": pa.bool_(),
    }
)
# Names that need no backticks in Spark 4; Spark 3.5 leaves "1a" without them too.
_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_PROVIDER, _DOMAIN, NO_CUBE = "liquid", "delta.clustering", -1
_AMPLIFIED = ("append", "bytes_appended", "bytes_rewritten", "num_complete_cubes", "num_partial_cubes")


@dataclass(frozen=True)
class CubedFiles:
    """The files of a clustered table, with the values that OPTIMIZE chooses files by; one element per file.

    A cube is the files that one bin became. New rows are in files without a cube. The rules are those of
    ClusteringStrategy.applyMinZCube and ZCube.filterOutLargeZCubes.

    Attributes:
        sizes, logical_bytes: Bytes, and bytes of the rows that are not deleted, int64.
        cube_of: The number of the file's cube, in the order of the cubes' ids, int64; `NO_CUBE` without one.
        is_apart: Whether the file was clustered by another system or by other columns, bool.
        order: Positions of the files to choose from, in OPTIMIZE's order: files without a cube come first.
        limits: The size from which a cube is complete, and the largest size of a new cube.
    """

    sizes: np.ndarray
    logical_bytes: np.ndarray
    cube_of: np.ndarray
    is_apart: np.ndarray
    order: np.ndarray
    limits: CubeSizes

    def is_complete(self) -> np.ndarray:
        """Return whether each file is in a complete cube, bool."""
        is_ours = (self.cube_of != NO_CUBE) & ~self.is_apart
        # Files without a cube have the last element, which stays 0.
        totals = np.zeros(self.cube_of.max(initial=NO_CUBE) + 2, np.int64)
        counted = self.order[is_ours[self.order]]
        np.add.at(totals, self.cube_of[counted], self.logical_bytes[counted])
        complete: np.ndarray = is_ours & (totals[self.cube_of] >= self.limits.complete)
        return complete

    def select(self, full: bool = False) -> np.ndarray:
        """Return the positions of the files that OPTIMIZE rewrites, in its order.

        With `full`, files of other columns or providers are rewritten too, as by OPTIMIZE … FULL.
        """
        is_apart = self.is_apart[self.order]
        ours, others = self.order[~is_apart], self.order[is_apart]
        chosen = self._last_first(ours)
        chosen = chosen[~self.is_complete()[chosen]]
        if full and len(others):
            return np.concatenate([chosen, others])
        numbers = self.cube_of[chosen]
        if len(chosen) and numbers[0] != NO_CUBE and (numbers == numbers[0]).all():
            return chosen[:0]
        return self._last_first(chosen)

    def pack(self, full: bool = False) -> Packing:
        """Pack the files that OPTIMIZE rewrites into bins, each of which becomes one cube."""
        one_group, everything = np.zeros(len(self.sizes), np.int64), np.ones(len(self.sizes), dtype=bool)
        packer = Packer(self.select(full), self.sizes, one_group)
        return packer.pack(everything, self.limits.most, keep_lone=True)

    def clustered(self, packing: Packing, max_file_size: int, overhead: int) -> Self:
        """Return the files after each bin was rewritten as one cube; their sizes are predicted.

        New files have about `max_file_size` bytes, including a fixed `overhead` per file.
        """
        positions, bin_ids = packing.members
        contents = np.maximum(self.logical_bytes - overhead, 0)
        removed, kept = (
            np.bincount(bin_ids, values[positions], packing.num_bins) for values in (self.sizes, contents)
        )
        counts = num_sorted_files(removed, max_file_size)
        sizes = np.minimum(kept + overhead * counts, removed).astype(np.int64) // counts
        numbers = np.arange(packing.num_bins) + self.cube_of.max(initial=NO_CUBE) + 1
        stay = np.delete(np.arange(len(self.sizes)), positions)
        return self._with(stay, np.repeat(sizes, counts), np.repeat(numbers, counts))

    def appended(self, size_bytes: int, max_file_size: int) -> Self:
        """Return the files together with new files of `size_bytes` in total."""
        count = int(num_sorted_files(np.array([size_bytes]), max_file_size)[0])
        new = np.full(count, size_bytes // count), np.full(count, NO_CUBE)
        return self._with(np.arange(len(self.sizes)), *new)

    def count_cubes(self) -> tuple[int, int]:
        """Return how many cubes are complete, and how many are not; cubes of other columns don't count."""
        is_complete = self.is_complete()
        is_partial = (self.cube_of != NO_CUBE) & ~self.is_apart & ~is_complete
        return len(np.unique(self.cube_of[is_complete])), len(np.unique(self.cube_of[is_partial]))

    def _with(self, stay: np.ndarray, sizes: np.ndarray, cube_of: np.ndarray) -> Self:
        """Return the files at some positions, and new files."""
        numbers = np.append(self.cube_of[stay], cube_of)
        return replace(
            self,
            sizes=np.append(self.sizes[stay], sizes),
            logical_bytes=np.append(self.logical_bytes[stay], sizes),
            cube_of=numbers,
            is_apart=np.append(self.is_apart[stay], np.zeros(len(sizes), dtype=bool)),
            order=np.argsort(numbers, kind="stable"),
        )

    def _last_first(self, order: np.ndarray) -> np.ndarray:
        """Move the last file in front of the preceding cube, if it is the only file of its cube.

        Delta's iterator returns such a cube before the cube that its file ends (ZCube, `!files.hasNext`).
        """
        cubes = self.cube_of[order]
        if len(order) < 2 or NO_CUBE in cubes[-2:] or cubes[-1] == cubes[-2]:
            return order
        start = int(np.flatnonzero(np.append(True, cubes[1:-1] != cubes[:-2]))[-1])
        return np.concatenate([order[:start], order[-1:], order[start:-1]])


class Clustering:
    """The files of a clustered table, in the cubes that earlier runs of OPTIMIZE made.

    Attributes:
        columns: The clustering columns, as SQL names them.
        cubed: The files with the values that OPTIMIZE chooses files by.
    """

    def __init__(
        self,
        files: Files,
        columns: Sequence[str],
        rules: SessionRules,
        is_later: np.ndarray,
        among: np.ndarray | None = None,
    ):
        """`is_later` marks files that come after others of their cube, `among` the files to choose from."""
        self.columns, self._files = tuple(columns), files
        self._among = np.ones(files.num_files, dtype=bool) if among is None else among
        tags = files.snapshot.clustering_tags
        ids, self._columns_of = one_array(tags["cube_id"]), one_array(tags["cube_columns"])
        # One number for each cube, in the order of their ids.
        self._ids = pc.unique(ids.drop_null()).sort()
        cube_of = pc.fill_null(pc.index_in(ids, self._ids), NO_CUBE).to_numpy().astype(np.int64)
        # The clustering columns in the format of the tag ZCUBE_ZORDER_BY (ZCubeInfo).
        ours = json.dumps(list(columns), separators=(",", ":"), ensure_ascii=False)
        self._is_other = _differs(self._columns_of, ours) & (cube_of != NO_CUBE)
        self._is_foreign = _differs(one_array(tags["clustering_provider"]), _PROVIDER)
        places = state_order(one_array(files.snapshot.live["path"]), rules.snapshot_partitions)
        # Files without a cube come first.
        order = np.lexsort((places, is_later, cube_of))
        is_apart = self._is_other | self._is_foreign
        self.cubed = CubedFiles(
            files.sizes, _logical_bytes(files), cube_of, is_apart, order[self._among[order]], rules.cubes
        )

    def states(self, full: bool = False) -> np.ndarray:
        """Return for each file why OPTIMIZE rewrites it or not, as text.

        "new" (in no cube), "partial cube", or why it stays: "complete cube", "single cube" (nothing else is
        to be rewritten), "other columns", "other provider", "nothing to purge".
        """
        is_complete, is_new = self.cubed.is_complete(), self.cubed.cube_of == NO_CUBE
        conditions = [~self._among, self._is_foreign, self._is_other, is_complete, is_new]
        found = np.select(conditions, [CLEAN, OTHER_PROVIDER, OTHER_COLUMNS, COMPLETE, NEW], PARTIAL)
        if not len(self.cubed.select(full)):
            found[found == PARTIAL] = SINGLE
        return found

    def cubes(self, full: bool = False) -> pa.Table:
        """Return one row per cube, and one for the files without a cube.

        Columns: cube_id (string, null for files without one), columns (list of string, its clustering
        columns), num_files, size_bytes, logical_bytes (int64; without deleted rows, as far as the log has
        their number), state (string, see `states`), is_rewritten (bool).
        """
        is_chosen = np.zeros(self._files.num_files, dtype=bool)
        is_chosen[self.cubed.select(full)] = True
        table = pa.table(
            {
                "cube": self.cubed.cube_of,
                "columns": self._columns_of,
                "size_bytes": self._files.sizes,
                "logical_bytes": self.cubed.logical_bytes,
                "state": self.states(full),
                "is_rewritten": is_chosen,
            }
        )
        sums = [("size_bytes", "count"), ("size_bytes", "sum"), ("logical_bytes", "sum")]
        rows = table.group_by(["cube", "columns", "state", "is_rewritten"]).aggregate(sums).sort_by("cube")
        cubes = rows["cube"].combine_chunks()
        names = [None if text is None else json.loads(text) for text in rows["columns"].to_pylist()]
        ids = self._ids.take(pc.if_else(pc.equal(cubes, NO_CUBE), None, cubes))
        numbers = ("size_bytes_count", "size_bytes_sum", "logical_bytes_sum", "state", "is_rewritten")
        return pa.table([ids, pa.array(names), *(rows[name] for name in numbers)], CUBES.names).cast(CUBES)

    def metrics(self, packing: Packing, full: bool) -> dict[str, Any]:
        """Return the fields of OPTIMIZE's result row that clustering changes: numBins and clusteringStats.

        If the first file is larger than a bin, OPTIMIZE counts an empty bin before it (groupFilesIntoBins).
        """
        has_empty = packing.num_bins > 0 and self._files.sizes[packing.order[0]] > self.cubed.limits.most
        num_bins = packing.num_bins + int(has_empty)
        cube_of = self.cubed.cube_of
        in_cube = (cube_of != NO_CUBE) & (full | ~self._is_other) & self._among

        def sums(sizes: np.ndarray) -> dict[str, int]:
            return {"numFiles": len(sizes), "size": int(sizes.sum())}

        stats = {
            "inputZCubeFiles": sums(self._files.sizes[in_cube]),
            "inputOtherFiles": sums(self._files.sizes[~in_cube & self._among]),
            "inputNumZCubes": len(np.unique(cube_of[in_cube])),
            "mergedFiles": sums(self._files.sizes[packing.members[0]]),
            "numOutputZCubes": num_bins,
        }
        return {"numBins": num_bins, "clusteringStats": stats}


def amplify(files: CubedFiles, append_bytes: int, times: int, max_file_size: int, overhead: int) -> pa.Table:
    """Simulate appends, each followed by OPTIMIZE, from sizes alone; see `CompactionPlan.amplification`.

    The ids of new cubes are random, so the order of several partial cubes is not known; here they are in the
    order of their creation.
    """
    rows = []
    for number in range(1, times + 1):
        files = files.appended(append_bytes, max_file_size)
        packing = files.pack()
        rewritten = int(files.sizes[packing.members[0]].sum())
        files = files.clustered(packing, max_file_size, overhead)
        rows.append((number, append_bytes, rewritten, *files.count_cubes()))
    return pa.table(dict(zip(_AMPLIFIED, np.array(rows, np.int64).T, strict=True)))


def clustering_columns(snapshot: Snapshot) -> list[str]:
    """Return the columns by which OPTIMIZE clusters a table, as SQL names them; [] without clustering.

    Raises:
        CorruptLogError: The domain delta.clustering is damaged, or names a field of a dropped struct.
    """
    domain = snapshot.domains.get(_DOMAIN)
    if domain is None or "clustering" not in snapshot.protocol.writer_features:
        return []
    try:
        paths = json.loads(domain["configuration"]).get("clusteringColumns") or ()
        return [_logical_name(snapshot, path) for path in paths]
    except DAMAGE as error:
        raise CorruptLogError(
            f"The domain {_DOMAIN} is damaged ({first_line(error)}): restore the log from a backup."
        ) from None


def _logical_name(snapshot: Snapshot, path: Sequence[str]) -> str:
    """Return the name of a column given by its physical names, as SQL names it."""
    fields: Sequence[Mapping[str, Any]] = snapshot.metadata.schema["fields"]
    names = []
    for part in path:
        found = [field for field in fields if snapshot.metadata.physical_name(field) == part]
        if not found and path[1:]:
            # Delta refuses to drop a clustering column, but not to drop the struct that has it.
            raise CorruptLogError(
                "A clustering column was dropped with its struct, so Delta can't optimize the table: "
                "restore a version that has the column."
            )
        (field,) = found
        names.append(quote_if_needed(field["name"]))
        fields = field["type"]["fields"] if isinstance(field["type"], dict) else ()
    return ".".join(names)


def quote_if_needed(name: str) -> str:
    """Quote a column's name unless it is plain, as Spark's function of this name (QuotingUtils)."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _differs(texts: pa.Array, text: str) -> np.ndarray:
    """Return whether each text differs from `text`; null doesn't."""
    return pc.fill_null(pc.not_equal(texts, text), False).to_numpy(zero_copy_only=False)


def _logical_bytes(files: Files) -> np.ndarray:
    """Return the bytes of each file's live rows, int64 (AddFile.estLogicalFileSize)."""
    sizes, (records, deleted) = files.sizes, count_rows(files)
    share = np.divide(records - deleted, records, out=np.ones(len(sizes)), where=records > 0)
    return (share * sizes).astype(np.int64)

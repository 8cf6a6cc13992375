"""The file actions of bins that were rewritten, and what OPTIMIZE tells of such a commit."""

import itertools
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from compaction_kit.execute.arrow.job import Bin
from compaction_kit.execute.arrow.stats import MergedStats, merge_stats, physical_schema
from compaction_kit.execute.arrow.worker import Rewritten
from compaction_kit.files import Files
from compaction_kit.log.paths import log_path
from compaction_kit.storage import Store


@dataclass(frozen=True)
class Replaced:
    """What the log will say of a bin, as far as its files tell it and not its output.

    Attributes:
        partition_values: Of its files.
        stats: Of its rows.
        sizes: The bytes of each file.
        removes: The remove action of each file, in JSON; thousands of objects would keep Python's
            garbage collector busy.
    """

    partition_values: dict[str, str | None]
    stats: MergedStats
    sizes: list[int]
    removes: list[str]


def replace_files(source: Files, bins: Sequence[Bin]) -> list[Replaced]:
    """What the log will say of some bins' files.

    They are removed as of now, before they are rewritten, as OPTIMIZE has it (OptimizeExecutor,
    operationTimestamp).
    """
    schema = physical_schema(source.snapshot.metadata)
    positions = np.concatenate([one.positions for one in bins])
    stats = source.snapshot.stats.take(pa.array(source.in_snapshot(positions))).to_pylist()
    paths, sizes = source.paths(positions).to_pylist(), source.sizes[positions].tolist()
    values = partition_values(source, positions)
    now = int(time.time() * 1000)
    ends = np.cumsum([len(one.positions) for one in bins]).tolist()
    found = []
    for start, end in itertools.pairwise([0, *ends]):
        files = zip(paths[start:end], values[start:end], sizes[start:end], strict=True)
        removes = [_remove(*file, now) for file in files]
        merged = merge_stats(stats[start:end], schema)
        found.append(Replaced(values[start], merged, sizes[start:end], removes))
    return found


def _remove(path: str, values: dict[str, str | None], size_bytes: int, now: int) -> str:
    remove = {
        "path": path,
        "deletionTimestamp": now,
        "dataChange": False,
        "extendedFileMetadata": True,
        "partitionValues": values,
        "size": size_bytes,
    }
    return json.dumps({"remove": remove})


def file_actions(store: Store, replaced: Iterable[Replaced], outputs: Iterable[Rewritten]) -> list[str]:
    """Of each bin the add of its output, if that has rows, and the removes of what it replaces, in JSON."""
    actions: list[str] = []
    for files, output in zip(replaced, outputs, strict=True):
        if output.num_rows:
            add = {
                "path": log_path(output.path.removeprefix(f"{store.root}/")),
                "partitionValues": files.partition_values,
                "size": output.size_bytes,
                "modificationTime": output.modification_time,
                "dataChange": False,
                "stats": files.stats.of(output.num_rows),
            }
            actions.append(json.dumps({"add": add}))
        actions += files.removes
    return actions


def partition_values(source: Files, positions: np.ndarray) -> list[dict[str, str | None]]:
    """The partition values of some files as the log has them: by physical names."""
    physical = source.snapshot.metadata.physical_names
    names = source.partition_columns
    chosen = source.partitions.take(pa.array(positions)) if names else None
    if chosen is None:
        return [{} for _ in positions]
    columns = [chosen[f"partition.{name}"].to_pylist() for name in names]
    keys = [physical[name] for name in names]
    return [dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]


def commit_metrics(replaced: Iterable[Replaced], outputs: Iterable[Rewritten]) -> dict[str, int]:
    """What OPTIMIZE tells in the history (OptimizeExecutor, createMetrics); one output has rows at least."""
    added = sorted(output.size_bytes for output in outputs if output.num_rows)
    removed = [size_bytes for files in replaced for size_bytes in files.sizes]
    count = len(added)
    return {
        "numAddedFiles": count,
        "numRemovedFiles": len(removed),
        "numAddedBytes": sum(added),
        "numRemovedBytes": sum(removed),
        "minFileSize": added[0],
        "p25FileSize": added[count // 4],
        "p50FileSize": added[count // 2],
        "p75FileSize": added[count * 3 // 4],
        "maxFileSize": added[-1],
        "numDeletionVectorsRemoved": 0,
    }

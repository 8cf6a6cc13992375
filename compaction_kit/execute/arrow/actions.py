"""The file actions of bins that were rewritten, and what OPTIMIZE tells of such a commit."""

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from compaction_kit.execute.arrow.job import Bin
from compaction_kit.execute.arrow.stats import merge_stats, physical_schema
from compaction_kit.execute.arrow.worker import Rewritten
from compaction_kit.files import Files

Action = dict[str, Any]


def file_actions(source: Files, bins: Sequence[Bin], done: Sequence[Rewritten]) -> list[Action]:
    """Of each bin the add of its output, if that has rows, and the removes of what it replaces."""
    schema = physical_schema(source.snapshot.metadata)
    positions = np.concatenate([one.positions for one in bins])
    stats = source.snapshot.stats.take(pa.array(source.in_snapshot(positions))).to_pylist()
    paths, sizes = source.paths(positions).to_pylist(), source.sizes[positions].tolist()
    values = partition_values(source, positions)
    now = int(time.time() * 1000)
    ends = np.cumsum([len(one.positions) for one in bins]).tolist()
    actions: list[Action] = []
    for start, end, output in zip([0, *ends], ends, done, strict=False):
        if output.num_rows:
            folder, slash, _ = paths[start].rpartition("/")
            actions.append(
                {
                    "add": {
                        "path": f"{folder}{slash}{os.path.basename(output.path)}",
                        "partitionValues": values[start],
                        "size": output.size_bytes,
                        "modificationTime": output.modification_time,
                        "dataChange": False,
                        "stats": merge_stats(stats[start:end], schema, output.num_rows),
                    }
                }
            )
        removed = zip(paths[start:end], values[start:end], sizes[start:end], strict=True)
        actions += [{"remove": _remove(*file, now)} for file in removed]
    return actions


def _remove(path: str, values: dict[str, str | None], size_bytes: int, now: int) -> Action:
    return {
        "path": path,
        "deletionTimestamp": now,
        "dataChange": False,
        "extendedFileMetadata": True,
        "partitionValues": values,
        "size": size_bytes,
    }


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


def commit_metrics(actions: Sequence[Action]) -> dict[str, int]:
    """What OPTIMIZE tells in the history (OptimizeExecutor, createMetrics)."""
    added = sorted(action["add"]["size"] for action in actions if "add" in action)
    removed = [action["remove"]["size"] for action in actions if "remove" in action]
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

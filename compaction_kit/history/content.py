"""Which versions have the same content, by what the log proves."""

import json
from typing import Any

import numpy as np
import pyarrow as pa

from compaction_kit.log.reconcile import action_keys
from compaction_kit.log.snapshot import Snapshot

_SEED = 7


def content_groups(first: Snapshot, commits: pa.Table, lifetimes: pa.Table, latest: int) -> np.ndarray:
    """Versions of one group have the same rows and columns.

    Two things prove it: every commit from one to the other says of its files that they change no
    data (dataChange; protocol, "Add File and Remove File") and leaves the schema as it is, or both
    have the same files and the same schema, as after a RESTORE.

    Args:
        first: The snapshot that the lifetimes begin with.
        commits: The ledger; see `TransactionLog.commits`.
        lifetimes: See `lifetimes.file_lifetimes`.
        latest: The latest version.

    Returns:
        For each version from the first to the latest the lowest of its group.
    """
    schemas = _schemas(first, commits, latest)
    changing = dict(zip(commits["version"].to_pylist(), commits["data_change"].to_pylist(), strict=True))
    prints = _fingerprints(lifetimes, first.version, latest)
    lowest: dict[tuple[int, int], int] = {}
    groups = np.arange(first.version, latest + 1)
    for i, version in enumerate(range(first.version, latest + 1)):
        # A commit that isn't there proves nothing.
        continues = i > 0 and schemas[i] == schemas[i - 1] and not changing.get(version, True)
        groups[i] = groups[i - 1] if continues else lowest.get((prints[i], schemas[i]), version)
        lowest.setdefault((prints[i], schemas[i]), groups[i])
    return groups


def _schemas(first: Snapshot, commits: pa.Table, latest: int) -> list[int]:
    """A number for each version's schema, the same for the same one."""
    known: list[Any] = [first.metadata.schema]
    set_by = {
        version: schema
        for version, schema in zip(commits["version"].to_pylist(), commits["schema"].to_pylist(), strict=True)
        if schema is not None and version > first.version
    }
    numbers, current = [], 0
    for version in range(first.version, latest + 1):
        if version in set_by:
            current = _position(known, json.loads(set_by[version]))
        numbers.append(current)
    return numbers


def _position(known: list[Any], one: Any) -> int:
    if one not in known:
        known.append(one)
    return known.index(one)


def _fingerprints(lifetimes: pa.Table, first: int, latest: int) -> list[int]:
    """The sum of 64-bit numbers drawn for each live file: that of other files is another one.

    That it isn't has a chance of one in 10^19.
    """
    keys = action_keys(lifetimes).dictionary_encode().indices.to_numpy()
    draws = np.random.default_rng(_SEED).integers(0, 2**64, keys.max(initial=0) + 1, np.uint64)[keys]
    steps = np.zeros(latest - first + 2, dtype=np.uint64)
    np.add.at(steps, lifetimes["added"].to_numpy() - first, draws)
    ended = lifetimes["removed"].is_valid().to_numpy()
    np.subtract.at(steps, lifetimes["removed"].drop_null().to_numpy() - first, draws[ended])
    return np.cumsum(steps, dtype=np.uint64)[:-1].tolist()

"""When Delta's auto compaction fires and what it rewrites, by a replay of the log."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from compaction_kit.errors import UnsupportedTableError
from compaction_kit.files import Files
from compaction_kit.log import TransactionLog
from compaction_kit.log.actions import count_records
from compaction_kit.log.lines import Action, commit_info, reading
from compaction_kit.log.protocol import Metadata
from compaction_kit.plan.clustering import clustering_columns
from compaction_kit.plan.packing import Packer
from compaction_kit.plan.thresholds import Conf, Thresholds, thresholds
from compaction_kit.records import Record
from compaction_kit.text import MIB, format_count, format_files, format_size

_CONF = "spark.databricks.delta.autoCompact"
_PROPERTIES = ("delta.autoOptimize", "delta.autoOptimize.autoCompact")
# Only TransactionalWrite.writeFiles registers the hook, and not for OPTIMIZE.
_WITHOUT_HOOK = ("OPTIMIZE", "REORG", "RESTORE", "CLONE", "CONVERT")
_COUNTS = ("num_counted", "num_small_files", "num_files", "size_bytes", "num_bins", "committed_as")

# The values of a partition, in the order of its columns.
Key = tuple[str | None, ...]


class _File(NamedTuple):
    size_bytes: int
    is_counted: bool
    has_many_deleted_rows: bool


@dataclass(frozen=True, repr=False)
class AutoCompaction(Record):
    """The commits at which auto compaction fires, if one session writes them all.

    Attributes:
        enabled_by: The setting or table property that turns it on; "" if it is off, and the replay shows what
            it would do.
        min_num_files, thresholds: Auto compaction's settings in the session.
        counts_below: Delta counts files of up to these bytes; None for all (delta-io/delta#4045).
        since: The first version of the replay.
        num_commits: Commits in the replay.
        num_in_log: Auto compactions in the log in these versions.
        fired: One row for each commit and each partition in which it fires. Columns: version (int64),
            partition.<column> (string; null in versions without that partition column), and int64
            num_counted (its files as Delta counts them), num_small_files (its files to compact), num_files,
            size_bytes and num_bins (what it rewrites; 0 if each of these files would be alone in its bin),
            committed_as (the version of this auto compaction in the log; null if there is none).
    """

    enabled_by: str
    min_num_files: int
    thresholds: Thresholds
    counts_below: int | None
    since: int
    num_commits: int
    num_in_log: int
    fired: pa.Table

    def facts(self) -> dict[str, str]:
        """Return the rules and their effect as readable text: names and values."""
        rows = self.fired.to_pylist()
        lower, upper = format_size(self.thresholds.min_file_size), format_size(self.thresholds.max_file_size)
        rewriting = {row["version"] for row in rows if row["num_bins"]}
        idle = len({row["version"] for row in rows} - rewriting)
        files = format_files(sum(row["num_files"] for row in rows), sum(row["size_bytes"] for row in rows))
        of_size = "any size" if self.counts_below is None else f"at most {format_size(self.counts_below)}"
        enough = f"{format_count(self.min_num_files, 'live file')} of {of_size} there ({_CONF}.minNumFiles)"
        facts = {
            "on by": self.enabled_by or "nothing: it is off, and this is what it would do",
            "fires": "after a commit, in each partition that it added files to: the first time, and if the "
            f"session has {enough}",
            "counts": f"files that a session adds from version {self.since} on, less all that it removes "
            "(delta-io/delta#4487)",
            "packs": f"files below {lower} into files of at most {upper} ({_CONF}.maxFileSize)",
            "rewrites": f"{files}, after {len(rewriting):,} of {format_count(self.num_commits, 'commit')}",
        }
        if idle:
            facts["in vain"] = f"after {format_count(idle, 'commit')}, where no two small files fit together"
        return facts | {"in the log": format_count(self.num_in_log, "auto compaction")}


def replay(log: TransactionLog, conf: Conf, since: int = 0) -> AutoCompaction:
    """Replay a log; see `Table.auto_compaction`."""
    earliest, latest = log.readable_range().start, log.snapshot()
    log.segment(max(since, earliest))  # raises if there is no such version
    # The state before the first commit must be known, and no commit may be missing.
    start = max(since, earliest + 1 if earliest else 0)
    if columns := clustering_columns(latest):
        raise UnsupportedTableError(
            f"The table is clustered by {', '.join(columns)}, and auto compaction picks files by cubes: see "
            "plan_compaction() for what OPTIMIZE does."
        )
    small, most = conf(f"{_CONF}.minFileSize"), int(conf(f"{_CONF}.maxFileSize") or 128 * MIB)
    limits = Thresholds(int(small or most // 2), most, thresholds(conf).max_deleted_rows_ratio)
    state = _State(limits, int(conf(f"{_CONF}.minNumFiles") or 50), int(small) if small else None)
    if start:
        state.load(Files(log.snapshot(start - 1)))
    setting = enabled_by(conf, latest.metadata.configuration)
    rows, in_log = list[dict[str, Any]](), 0
    for (version, actions), (following, next_actions) in pairwise(chain(log.raw_commits(start), [(0, [])])):
        done = following if _is_auto(next_actions) else None
        in_log += _is_auto(actions)
        with reading(f"{version:020d}.json"):
            added_to = state.apply(actions)
            if enabled_by(conf, state.metadata.configuration) or not setting:
                fired = state.fire(added_to, done is not None)
                rows += [{"version": version, **row, "committed_as": done} for row in fired]
    names = [f"partition.{name}" for name in latest.metadata.partition_columns]
    # Earlier versions may have been partitioned by other columns.
    names += (name for row in rows for name in row if name.startswith("partition."))
    kinds = {"version": pa.int64(), **dict.fromkeys(names, pa.string()), **dict.fromkeys(_COUNTS, pa.int64())}
    table, num_commits = pa.Table.from_pylist(rows, pa.schema(kinds)), latest.version - start + 1
    rules = state.min_num_files, limits, state.counts_below
    return AutoCompaction(setting, *rules, start, num_commits, in_log, table)


def _is_auto(actions: Sequence[Action]) -> bool:
    parameters = commit_info(actions).get("operationParameters")
    return isinstance(parameters, dict) and parameters.get("auto") in (True, "true")


def enabled_by(conf: Conf, properties: Mapping[str, str]) -> str:
    """Return the setting or property that turns it on, or "" (AutoCompactBase.getAutoCompactType)."""
    setting = conf(f"{_CONF}.enabled")
    if setting is not None:
        return f"{_CONF}.enabled" if setting.lower() == "true" else ""
    return next((name for name in _PROPERTIES if properties.get(name, "").lower() == "true"), "")


@dataclass
class _Partition:
    """Live files by path, and how many Delta has counted."""

    files: dict[str, _File] = field(default_factory=dict)
    counted: int = 0
    was_compacted: bool = False

    def is_due(self, enough: int) -> bool:
        """See AutoCompactPartitionStats.PartitionStat.hasSufficientSmallFilesOrHasNotBeenCompacted."""
        return self.counted > 0 and (not self.was_compacted or self.counted >= enough)

    def count(self, change: int) -> None:
        """Change the counter; Delta drops a counter that isn't positive (AutoCompactPartitionStats.merge)."""
        self.counted = max(self.counted + change, 0)
        self.was_compacted &= self.counted > 0


@dataclass
class _State:
    """A table's state, and the counts of a session that writes all commits from the first replayed one on."""

    limits: Thresholds
    min_num_files: int
    counts_below: int | None
    metadata: Metadata = field(init=False)
    names: list[str] = field(init=False)
    partitions: defaultdict[Key, _Partition] = field(default_factory=lambda: defaultdict(_Partition))
    compacting: list[_Partition] = field(default_factory=list)

    def load(self, files: Files) -> None:
        """Begin with files that the session hasn't counted."""
        self._follow(files.snapshot.metadata)
        for row in files.to_arrow().to_pylist():
            key = tuple(row[f"partition.{name}"] for name in self.metadata.partition_columns)
            file = self._file(row["size_bytes"], row["num_records"], row["deletion_vector_cardinality"])
            self.partitions[key].files[row["path"]] = file

    def apply(self, actions: Sequence[Action]) -> set[Key]:
        """Apply a commit; returns the partitions that it added files to, if the hook runs after it."""
        for action in actions:
            if "metaData" in action:
                self._follow(Metadata.of(action["metaData"]))
        adds, removes = (
            [(self._key(action[kind]), action[kind]) for action in actions if kind in action]
            for kind in ("add", "remove")
        )
        is_write = any(add["path"] not in self.partitions[key].files for key, add in adds)
        changes = Counter[Key]()
        for key, remove in removes:
            if known := self.partitions[key].files.pop(remove["path"], None):
                changes[key] -= known.is_counted
        stats = [add.get("stats") if add.get("deletionVector") else None for _, add in adds]
        counts = count_records(pa.array(stats, pa.string())).to_pylist()
        for (key, add), records in zip(adds, counts, strict=True):
            deleted = (add.get("deletionVector") or {}).get("cardinality")
            file = self._file(add["size"], records, deleted)
            self.partitions[key].files[add["path"]] = file
            changes[key] += file.is_counted
        for key, change in changes.items():
            self.partitions[key].count(change)
        self._mark()
        is_hooked = is_write and commit_info(actions).get("operation") not in _WITHOUT_HOOK
        return {key for key, _ in adds} if is_hooked else set()

    def fire(self, added_to: set[Key], in_log: bool) -> list[dict[str, Any]]:
        """Return what auto compaction does after a commit; apply it unless it is the log's next commit."""
        chosen = {key for key in added_to if self.partitions[key].is_due(self.min_num_files)}
        self.compacting += [self.partitions[key] for key in chosen]
        # With column mapping, Delta's predicate has physical names, and so selects all partitions.
        compacted = set(self.partitions) if chosen and self.metadata.is_mapped else chosen
        names, rows = [f"partition.{name}" for name in self.metadata.partition_columns], []
        for key in sorted(compacted, key=str):
            counted = self.partitions[key].counted
            numbers = counted, *self._compact(self.partitions[key], in_log)
            row = dict(zip((*names, *_COUNTS[:5]), (*key, *numbers), strict=True))
            rows += [row] if key in chosen or row["num_bins"] else []
        if not in_log:
            self._mark()
        return rows

    def _compact(self, partition: _Partition, in_log: bool) -> tuple[int, int, int, int]:
        files, lower = partition.files, self.limits.min_file_size
        small = [path for path, one in files.items() if one.has_many_deleted_rows or one.size_bytes < lower]
        sizes = np.array([files[path].size_bytes for path in small], np.int64)
        packer = Packer(np.argsort(sizes, kind="stable"), sizes, np.zeros(len(small), np.int64))
        packing = packer.pack(np.ones(len(small), bool), self.limits.max_file_size)
        positions, bin_ids = packing.members
        if not in_log:
            change = -sum(files.pop(small[position]).is_counted for position in positions)
            totals = np.bincount(bin_ids, sizes[positions]).astype(int).tolist()
            # Each new file is stored under the path of its first input.
            for position, total in zip(packing.order[packing.starts], totals, strict=True):
                files[small[position]] = self._file(total)
                change += files[small[position]].is_counted
            partition.count(change)
        return len(small), len(positions), int(sizes[positions].sum()), packing.num_bins

    def _mark(self) -> None:
        for partition in self.compacting:
            partition.was_compacted = partition.counted > 0
        self.compacting = []

    def _key(self, action: Mapping[str, Any]) -> Key:
        values = action.get("partitionValues") or {}
        return tuple(map(values.get, self.names))

    def _follow(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.names = [metadata.physical_names[name] for name in metadata.partition_columns]

    def _file(self, size: int, records: int | None = None, deleted: int | None = None) -> _File:
        # Computed in AddFile's order: for 1 of 20 rows, rounding makes the ratio greater than 0.05.
        kept = (records - deleted) / records if deleted and records else 1.0
        many = deleted is not None and (records is None or 1.0 - kept > self.limits.max_deleted_rows_ratio)
        return _File(size, self.counts_below is None or int(kept * size) <= self.counts_below, many)

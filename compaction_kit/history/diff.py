"""What differs between two versions, by the log."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.files import Files
from compaction_kit.history.content import content_groups
from compaction_kit.log import TransactionLog
from compaction_kit.log.actions import PARTITION
from compaction_kit.markup import as_html_table, as_text, shown
from compaction_kit.sizes import format_count, format_size

ADDED, REMOVED = "added", "removed"
_MOST_PARTITIONS = 12


@dataclass(frozen=True)
class Diff:
    """What one has to add to a version, and to remove from it, to get another one, which may be older.

    A file whose deletion vector differs is removed as it was and added as it is.

    Attributes:
        start, end: The two versions.
        files: One row a file: path (as the log writes it), change ("added", "removed"), size_bytes,
            num_records (without deleted rows; null where the log has no statistics), partition.<column>.
        commits: The commits between the two, as `TransactionLog.commits` has them: version, timestamp,
            operation, data_change.
        same_content: Whether the log proves that both have the same rows and columns; see
            `content.content_groups`.
    """

    start: int
    end: int
    files: pa.Table
    commits: pa.Table
    same_content: bool

    @property
    def num_files_added(self) -> int:
        """How many files the end has and the start hasn't."""
        return len(self._of(ADDED))

    @property
    def num_files_removed(self) -> int:
        """How many files the start has and the end hasn't."""
        return len(self._of(REMOVED))

    @property
    def bytes_added(self) -> int:
        """Their bytes."""
        return pc.sum(self._of(ADDED)["size_bytes"]).as_py() or 0

    @property
    def bytes_removed(self) -> int:
        """Their bytes."""
        return pc.sum(self._of(REMOVED)["size_bytes"]).as_py() or 0

    @property
    def records_added(self) -> int | None:
        """The rows in the files added; None where the log doesn't say."""
        return _total(self._of(ADDED)["num_records"])

    @property
    def records_removed(self) -> int | None:
        """The rows in the files removed; None where the log doesn't say."""
        return _total(self._of(REMOVED)["num_records"])

    @cached_property
    def by_partition(self) -> pa.Table:
        """One row a partition.

        Returns:
            partition.<column>, files_added, files_removed, bytes_added, bytes_removed,
            records_added, records_removed (null where the log doesn't say).
        """
        keys = [name for name in self.files.column_names if name.startswith(PARTITION)]
        table = self.files.select(keys)
        sums = []
        for change in (ADDED, REMOVED):
            is_it = pc.equal(self.files["change"], change)
            columns = {
                "files": is_it.cast(pa.int64()),
                "bytes": pc.if_else(is_it, self.files["size_bytes"], 0),
                "records": pc.if_else(is_it, self.files["num_records"], 0),
            }
            for name, values in columns.items():
                table = table.append_column(f"{name}_{change}", values)
                sums.append((f"{name}_{change}", "sum", pc.ScalarAggregateOptions(skip_nulls=False)))
        totals = table.group_by(keys).aggregate(sums)
        names = [f"{name}_{change}" for name in ("files", "bytes", "records") for change in (ADDED, REMOVED)]
        ordered = totals.select([*keys, *(f"{name}_sum" for name in names)]).rename_columns([*keys, *names])
        return ordered.sort_by([(key, "ascending") for key in keys]) if keys else ordered

    def facts(self) -> dict[str, str]:
        """The difference for people: name and value."""
        changing = self.commits.filter(self.commits["data_change"])["version"].to_pylist()
        same = "provably the same" if self.same_content else "not provably the same"
        return {
            "versions": f"{self.start} → {self.end}, {format_count(len(self.commits), 'commit')} apart",
            "files": f"{self.num_files_added:,} added, {self.num_files_removed:,} removed",
            "bytes": f"{format_size(self.bytes_added)} added, {format_size(self.bytes_removed)} removed",
            "rows in them": f"{_shown(self.records_added)} added, {_shown(self.records_removed)} removed",
            "commits that change data": _listed(changing),
            "content": same,
        }

    def paths(self, change: str) -> list[str]:
        """The paths of the files "added" or "removed", as the log writes them."""
        return self._of(change)["path"].to_pylist()

    def _of(self, change: str) -> pa.Table:
        return self.files.filter(pc.equal(self.files["change"], change))

    def _repr_html_(self) -> str:
        table = self.by_partition
        keys = [name for name in table.column_names if name.startswith(PARTITION)]
        if not keys or not len(table):
            return shown(self.facts())
        head = ["partition", "files added", "removed", "bytes added", "removed", "rows added", "removed"]
        rows = [_row(row, keys) for row in table.slice(0, _MOST_PARTITIONS).to_pylist()]
        more = len(table) - len(rows)
        rest = [f"… and {format_count(more, 'more partition')}: see by_partition"] if more else []
        return shown(self.facts(), as_html_table(head, rows), *rest)

    def __repr__(self) -> str:
        return f"Diff(\n{as_text(self.facts())}\n)"


def diff_versions(log: TransactionLog, start: int, end: int) -> Diff:
    """Compare two versions by the log alone.

    Args:
        log: The table's log.
        start: A version.
        end: Another one, later or earlier.

    Raises:
        InvalidArgumentError: One of them can't be read back.
    """
    sides = [_files_of(log, version) for version in (start, end)]
    removed, added = (_without(one, other) for one, other in (sides, sides[::-1]))
    parts = [
        part.append_column("change", pa.repeat(change, len(part)))
        for part, change in ((added, ADDED), (removed, REMOVED))
    ]
    files = pa.concat_tables(parts, promote_options="default").drop_columns(["key"])
    names = ["path", "change", "size_bytes", "num_records"]
    partitions = [name for name in files.column_names if name.startswith(PARTITION)]
    commits = log.commits().select(["version", "timestamp", "operation", "data_change"])
    low, high = min(start, end), max(start, end)
    between = commits.filter(
        pc.and_(pc.greater(commits["version"], low), pc.less_equal(commits["version"], high))
    )
    return Diff(start, end, files.select([*names, *partitions]), between, _has_same_content(log, start, end))


def _has_same_content(log: TransactionLog, start: int, end: int) -> bool:
    first, lifetimes = log.lifetimes()
    if min(start, end) < first.version:
        return start == end
    groups = content_groups(first, log.commits(), lifetimes, log.segment().version)
    return bool(groups[start - first.version] == groups[end - first.version])


def _files_of(log: TransactionLog, version: int) -> pa.Table:
    """The live files of a version, and what each is known by: its path and its deletion vector."""
    snapshot = log.snapshot(version)
    files = Files(snapshot).to_arrow()
    vectors = snapshot.live["deletion_vector_id"]
    key = pc.binary_join_element_wise(files["path"], vectors, "\0", null_handling="replace")
    deleted = pc.fill_null(files["deletion_vector_cardinality"], 0)
    partitions = [name for name in files.column_names if name.startswith(PARTITION)]
    columns = {
        "path": files["path"],
        "size_bytes": files["size_bytes"],
        "num_records": pc.subtract(files["num_records"], deleted),
        "key": key,
    }
    return pa.table(columns | {name: files[name] for name in partitions})


def _without(files: pa.Table, others: pa.Table) -> pa.Table:
    return files.filter(pc.invert(pc.is_in(files["key"], value_set=others["key"])))


def _total(values: pa.ChunkedArray) -> int | None:
    return None if values.null_count else pc.sum(values).as_py() or 0


def _shown(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _listed(versions: Sequence[int], most: int = 8) -> str:
    if not versions:
        return "none"
    more = f" and {len(versions) - most:,} more" if len(versions) > most else ""
    return ", ".join(map(str, versions[:most])) + more


def _row(row: dict[str, Any], keys: Sequence[str]) -> list[str]:
    values = [f"{key.removeprefix(PARTITION)}={row[key]}" for key in keys]
    counts = [f"{row['files_added']:,}", f"{row['files_removed']:,}"]
    sizes = [format_size(row[name]) for name in ("bytes_added", "bytes_removed")]
    records = [
        "unknown" if row[name] is None else f"{row[name]:,}" for name in ("records_added", "records_removed")
    ]
    return [", ".join(values), *counts, *sizes, *records]

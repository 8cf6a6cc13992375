"""The difference between two versions, by the log."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.files import Files
from compaction_kit.handle import Handle
from compaction_kit.history.content import (
    CLAIMED,
    FINGERPRINT,
    IDENTICAL,
    compare_versions,
    not_in,
    read_content,
)
from compaction_kit.log.actions import PARTITION
from compaction_kit.log.listing import whole_version
from compaction_kit.records import Record
from compaction_kit.text import as_html_table, format_count, format_list, format_partition, format_size

ADDED, REMOVED = "added", "removed"
_MOST_PARTITIONS = 12
_MOST_COMMITS = 8


@dataclass(frozen=True, repr=False)
class Diff(Record):
    """The files to add and to remove to get from one version to another, which may be older.

    A file whose deletion vector differs is both removed and added.

    Attributes:
        start, end: The two versions.
        files: One row per file: path (as in the log), change ("added" or "removed"), size_bytes,
            num_records (without deleted rows; null without statistics), partition.<column>.
        commits: The commits between the two: version, timestamp, operation, data_change, as in
            `TransactionLog.commits`.
        same_content_by: How it is known that both have the same rows and columns: "identical files",
            "equal fingerprints", "proved by compaction_kit" or "says OPTIMIZE, row counts agree" (about the
            commits between the two); None if it isn't known. See `content.read_content`.
        difference: How it is known that the content differs: "other columns", "100 rows fewer", "other
            fingerprints"; None if it isn't known.
        content_claim: "claimed by its writer" if the commits between the two say, without further
            evidence, that they change no data, with ", contradicted by the row counts" if the log shows
            that this is wrong; else None.
    """

    start: int
    end: int
    files: pa.Table
    commits: pa.Table
    same_content_by: str | None
    difference: str | None
    content_claim: str | None

    @property
    def same_content(self) -> bool:
        """Whether both versions are known to have the same rows and columns; a claim is not enough."""
        return self.same_content_by is not None

    @property
    def num_files_added(self) -> int:
        """The number of files that only the end has."""
        return len(self._of(ADDED))

    @property
    def num_files_removed(self) -> int:
        """The number of files that only the start has."""
        return len(self._of(REMOVED))

    @property
    def bytes_added(self) -> int:
        """The size in bytes of the added files."""
        return pc.sum(self._of(ADDED)["size_bytes"]).as_py() or 0

    @property
    def bytes_removed(self) -> int:
        """The size in bytes of the removed files."""
        return pc.sum(self._of(REMOVED)["size_bytes"]).as_py() or 0

    @property
    def records_added(self) -> int | None:
        """The number of rows in the added files; None if statistics are missing."""
        return _total(self._of(ADDED)["num_records"])

    @property
    def records_removed(self) -> int | None:
        """The number of rows in the removed files; None if statistics are missing."""
        return _total(self._of(REMOVED)["num_records"])

    @cached_property
    def by_partition(self) -> pa.Table:
        """The difference, one row per partition; records are null without statistics."""
        keys = [name for name in self.files.column_names if name.startswith(PARTITION)]
        table, names = self.files.select(keys), []
        counted = {"files": 1, "bytes": self.files["size_bytes"], "records": self.files["num_records"]}
        for name, values in counted.items():
            for change in (ADDED, REMOVED):
                names.append(f"{name}_{change}")
                table = table.append_column(
                    names[-1], pc.if_else(pc.equal(self.files["change"], change), values, 0).cast(pa.int64())
                )
        sum_or_null = pc.ScalarAggregateOptions(skip_nulls=False)
        sums = table.group_by(keys).aggregate([(name, "sum", sum_or_null) for name in names])
        sums = sums.select([*keys, *(f"{name}_sum" for name in names)]).rename_columns([*keys, *names])
        return sums.sort_by([(key, "ascending") for key in keys]) if keys else sums

    def facts(self) -> dict[str, str]:
        """Return the difference for people: name and value."""
        changing = self.commits.filter(self.commits["data_change"])["version"].to_pylist()
        added, removed = _shown(self.records_added), _shown(self.records_removed)
        return {
            "versions": f"{self.start} → {self.end}, {format_count(len(self.commits), 'commit')} apart",
            "files": f"{self.num_files_added:,} added, {self.num_files_removed:,} removed",
            "bytes": f"{format_size(self.bytes_added)} added, {format_size(self.bytes_removed)} removed",
            "rows in them": f"{added} added, {removed} removed",
            "commits that change data": format_list(changing, _MOST_COMMITS) or "none",
            "content": self._content(),
        }

    def parts(self) -> Sequence[object]:
        """Return the facts, and a table of the partitions in which files differ."""
        rows = self.by_partition.slice(0, _MOST_PARTITIONS).to_pylist()
        keys = [name for name in self.by_partition.column_names if name.startswith(PARTITION)]
        if not keys or not rows:
            return (self.facts(),)
        head = ["partition", "files added", "removed", "bytes added", "removed", "rows added", "removed"]
        cells = [
            [
                format_partition(row),
                *(_shown(row[f"files_{change}"]) for change in (ADDED, REMOVED)),
                *(format_size(row[f"bytes_{change}"]) for change in (ADDED, REMOVED)),
                *(_shown(row[f"records_{change}"]) for change in (ADDED, REMOVED)),
            ]
            for row in rows
        ]
        more = len(self.by_partition) - len(rows)
        rest = [f"… and {format_count(more, 'more partition')}: see by_partition"] if more else []
        return self.facts(), as_html_table(head, cells), *rest

    def paths(self, change: str) -> list[str]:
        """Return the paths of the files "added" or "removed", as in the log."""
        return self._of(change)["path"].to_pylist()

    def _of(self, change: str) -> pa.Table:
        return self.files.filter(pc.equal(self.files["change"], change))

    def _content(self) -> str:
        if self.same_content_by:
            return f"the same: {self.same_content_by}"
        if self.difference:
            claim = f", though {CLAIMED} to be the same" if self.content_claim else ""
            return f"different: {self.difference}{claim}"
        state = f"{self.content_claim} to be the same" if self.content_claim else "not known to be the same"
        return f"{state}; verify=True compares the rows"


def diff_versions(handle: Handle, start: int, end: int, verify: bool = False) -> Diff:
    """Compare two versions by the log alone, or by their rows as well.

    Args:
        handle: The table.
        start: A version.
        end: Another version, later or earlier.
        verify: Whether to read the files that differ and to compare their fingerprints.

    Raises:
        InvalidArgumentError: A version can't be read from the log, or files to compare are missing.

    Examples:
        >>> diff = ck.open_table("data/flights").diff(0, 2)
        >>> diff
        Diff(
        versions                    0 → 2, 2 commits apart
        files                       6 added, 0 removed
        bytes                       ... added, 0 B removed
        rows in them                1,785 added, 0 removed
        commits that change data    1, 2
        content                     different: 1,785 rows more
        )
        >>> diff.by_partition.schema
        partition.origin: string
        files_added: int64
        files_removed: int64
        bytes_added: int64
        bytes_removed: int64
        records_added: int64
        records_removed: int64
    """
    start, end = whole_version(start), whole_version(end)
    before, after = handle.log.snapshot(start), handle.log.snapshot(end)
    parts = []
    for change, snapshot, other in ((ADDED, after, before), (REMOVED, before, after)):
        part = Files(snapshot).to_arrow().filter(not_in(snapshot, other))
        deleted = pc.fill_null(part["deletion_vector_cardinality"], 0)
        columns = {"path": part["path"], "change": pa.repeat(change, len(part))}
        columns |= {
            "size_bytes": part["size_bytes"],
            "num_records": pc.subtract(part["num_records"], deleted),
        }
        columns |= {name: part[name] for name in part.column_names if name.startswith(PARTITION)}
        parts.append(pa.table(columns))
    files = pa.concat_tables(parts, promote_options="default")
    commits = handle.log.commits().select(["version", "timestamp", "operation", "data_change"])
    low, high = sorted((start, end))
    between = pc.and_(pc.greater(commits["version"], low), pc.less_equal(commits["version"], high))
    if before.metadata.schema != after.metadata.schema:
        known: tuple[str | None, str | None, str | None] = (None, "other columns", None)
    elif not len(files):
        known = (IDENTICAL, None, None)
    else:
        known = _compared(handle, start, end, files, verify)
    return Diff(start, end, files, commits.filter(between), *known)


def _compared(
    handle: Handle, start: int, end: int, files: pa.Table, verify: bool
) -> tuple[str | None, str | None, str | None]:
    """Return `Diff.same_content_by`, `Diff.difference` and `Diff.content_claim`."""
    content = read_content(handle)
    is_known = min(start, end) >= content.first
    claim = content.claim(start, end) if is_known else None
    if verify:
        try:
            is_same = compare_versions(handle, start, end)
        except FileNotFoundError:
            raise InvalidArgumentError(
                f"Versions {start} and {end} can't be compared, as files that differ are missing: "
                "leave verify out, or choose versions that versions() calls readable."
            ) from None
        return (FINGERPRINT, None, None) if is_same else (None, "other fingerprints", claim)
    evidence = content.evidence(start, end) if is_known else None
    if evidence:
        return evidence, None, None
    changes = (files.filter(pc.equal(files["change"], change)) for change in (REMOVED, ADDED))
    before, after = (_total(change["num_records"]) for change in changes)
    if before is None or after is None or before == after:
        return None, None, claim
    more = after - before
    return None, f"{format_count(abs(more), 'row')} {'more' if more > 0 else 'fewer'}", claim


def _total(values: pa.ChunkedArray) -> int | None:
    return None if values.null_count else pc.sum(values).as_py() or 0


def _shown(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"

"""What differs between two versions, by the log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.files import Files
from compaction_kit.history.content import CLAIMED, FINGERPRINT, IDENTICAL, read_content
from compaction_kit.log import TransactionLog
from compaction_kit.log.actions import PARTITION
from compaction_kit.log.listing import whole_version
from compaction_kit.text import as_html_table, as_text, format_count, format_size, shown

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
        same_content_by: How it is known that both have the same rows and columns: "identical files",
            "says OPTIMIZE, row counts agree" (of the commits between the two), "equal fingerprints";
            None if it isn't known. See `content.read_content`.
        difference: How it is known that they haven't: "other columns", "100 rows fewer", "other
            fingerprints"; None if it isn't known.
        content_claim: What the commits between the two say without more to show for it: "claimed by
            its writer" if they say that they change no data, with ", contradicted by the row counts"
            where they are wrong; else None.
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
        """Whether both are known to have the same rows and columns; a claim doesn't count."""
        return self.same_content_by is not None

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
        return {
            "versions": f"{self.start} → {self.end}, {format_count(len(self.commits), 'commit')} apart",
            "files": f"{self.num_files_added:,} added, {self.num_files_removed:,} removed",
            "bytes": f"{format_size(self.bytes_added)} added, {format_size(self.bytes_removed)} removed",
            "rows in them": f"{_shown(self.records_added)} added, {_shown(self.records_removed)} removed",
            "commits that change data": _listed(changing),
            "content": self._content(),
        }

    def _content(self) -> str:
        if self.same_content_by:
            return f"the same: {self.same_content_by}"
        if self.difference:
            return f"different: {self.difference}" + (
                f", though {CLAIMED} to be the same" if self.content_claim else ""
            )
        state = f"{self.content_claim} to be the same" if self.content_claim else "not known to be the same"
        return f"{state}; verify=True compares the rows"

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


def diff_versions(
    log: TransactionLog, start: int, end: int, compare: Callable[[int, int], bool] | None = None
) -> Diff:
    """Compare two versions by the log alone, or their rows as well.

    Args:
        log: The table's log.
        start: A version.
        end: Another one, later or earlier.
        compare: Tells by reading whether both have the same rows; see `content.compare_versions`.

    Raises:
        InvalidArgumentError: One of them can't be read back, or not compared, for files are gone.
    """
    start, end = whole_version(start), whole_version(end)
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
    known = files.select([*names, *partitions])
    same, different, claim = _content(log, start, end, known, compare)
    return Diff(start, end, known, between, same, different, claim)


def _content(
    log: TransactionLog, start: int, end: int, files: pa.Table, compare: Callable[[int, int], bool] | None
) -> tuple[str | None, str | None, str | None]:
    """How it is known that both have the same content, how that they haven't, and what is claimed."""
    if log.snapshot(start).metadata.schema != log.snapshot(end).metadata.schema:
        return None, "other columns", None
    if not len(files):
        return IDENTICAL, None, None
    content = read_content(log)
    tells = min(start, end) >= content.first
    claim = content.claim(start, end) if tells else None
    if compare is not None:
        same = _compared(compare, start, end)
        return (FINGERPRINT, None, None) if same else (None, "other fingerprints", claim)
    evidence = content.evidence(start, end) if tells else None
    if evidence:
        return evidence, None, None
    change = files["change"]
    before, after = (_total(files.filter(pc.equal(change, one))["num_records"]) for one in (REMOVED, ADDED))
    if before is None or after is None or before == after:
        return None, None, claim
    more = after - before
    return None, f"{format_count(abs(more), 'row')} {'more' if more > 0 else 'fewer'}", claim


def _compared(compare: Callable[[int, int], bool], start: int, end: int) -> bool:
    try:
        return compare(start, end)
    except FileNotFoundError as error:
        raise InvalidArgumentError(
            f"Versions {start} and {end} can't be compared, for files that differ between them are gone: "
            "leave verify out, or choose versions that versions() calls readable."
        ) from error


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

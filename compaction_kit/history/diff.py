"""Compare two versions by the log."""

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import InvalidArgumentError, show_value
from compaction_kit.files import Files
from compaction_kit.handle import Handle
from compaction_kit.history.content import IDENTICAL, PROVED, changed_rows, find_same_content
from compaction_kit.history.readable import read_files_by_version
from compaction_kit.log.actions import PARTITION
from compaction_kit.log.protocol import UNREAD, columns_of
from compaction_kit.log.snapshot import Snapshot, file_keys
from compaction_kit.records import Record
from compaction_kit.text import format_count, format_list, format_size, parse_count

ADDED, REMOVED, OTHER_COLUMNS = "added", "removed", "other columns"
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
        num_files_added, num_files_removed: Number of files that only the end, or only the start, has.
        bytes_added, bytes_removed: The sizes of these files.
        records_added, records_removed: The number of rows in them; None if statistics are missing.
        same_content_by: The evidence that both have the same rows and columns, as in `Table.versions`; None
            if there is none.
        difference: The evidence that the content differs: "other columns", "100 rows fewer", "other rows";
            None if there is none.
    """

    start: int
    end: int
    files: pa.Table
    commits: pa.Table
    num_files_added: int
    num_files_removed: int
    bytes_added: int
    bytes_removed: int
    records_added: int | None
    records_removed: int | None
    same_content_by: str | None
    difference: str | None

    @property
    def same_content(self) -> bool:
        """Whether both versions are known to have the same rows and columns."""
        return self.same_content_by is not None

    def facts(self) -> dict[str, str]:
        """Return the difference as readable text: names and values."""
        changing = self.commits.filter(self.commits["data_change"])["version"].to_pylist()
        added, removed = (
            "unknown" if number is None else f"{number:,}"
            for number in (self.records_added, self.records_removed)
        )
        content = "not known to be the same; verify=True compares the rows"
        if self.same_content:
            content = f"the same: {self.same_content_by}"
        elif self.difference:
            content = f"different: {self.difference}"
        return {
            "versions": f"{self.start} → {self.end}, {format_count(len(self.commits), 'commit')} apart",
            "files": f"{self.num_files_added:,} added, {self.num_files_removed:,} removed",
            "bytes": f"{format_size(self.bytes_added)} added, {format_size(self.bytes_removed)} removed",
            "rows in them": f"{added} added, {removed} removed",
            "commits with dataChange=true": format_list(changing, _MOST_COMMITS) or "none",
            "content": content,
        }

    def paths(self, change: str) -> list[str]:
        """Return the paths of the files "added" or "removed", as in the log."""
        if change not in (ADDED, REMOVED):
            raise InvalidArgumentError(
                f'change={show_value(change)} is no change: give "added" or "removed".'
            )
        return self.files["path"].filter(pc.equal(self.files["change"], change)).to_pylist()


def diff_versions(handle: Handle, start: int, end: int, verify: bool = False) -> Diff:
    """Compare two versions by the log, and by their rows with `verify`, which reads the files that differ.

    Raises:
        InvalidArgumentError: A version can't be read from the log, or files to compare are missing.
        RunFailedError, RunCancelled: Spark can't read the files to compare, or Ctrl-C ended it.
    """
    start, end, handle = parse_count(start, "version", 0), parse_count(end, "version", 0), handle.listed()
    before, after = handle.log.snapshot(start), handle.log.snapshot(end)
    parts, totals = [], dict[str, Any]()
    for change, snapshot, other in ((ADDED, after, before), (REMOVED, before, after)):
        parts.append(part := _files_apart(snapshot, other, change))
        totals[f"num_files_{change}"] = len(part)
        totals[f"bytes_{change}"] = pc.sum(part["size_bytes"]).as_py() or 0
        records = part["num_records"]
        totals[f"records_{change}"] = None if records.null_count else pc.sum(records).as_py() or 0
    files = pa.concat_tables(parts, promote_options="default")
    earlier, later = sorted((start, end))
    between = (pc.field("version") > earlier) & (pc.field("version") <= later)
    commits = handle.log.commits().select(["version", "timestamp", "operation", "data_change"])
    commits = commits.filter(between)
    by, difference = None, None
    # Columns with other metadata, such as names in the files, may have the same values.
    columns, others = (columns_of(one.metadata.schema, (*UNREAD, "metadata")) for one in (before, after))
    if columns != others:
        difference = OTHER_COLUMNS
    elif verify:
        try:
            gone, new = changed_rows(handle, start, end)
        except FileNotFoundError:
            raise InvalidArgumentError(
                f"Versions {start} and {end} can't be compared, as files that differ are missing: "
                "choose versions that can be read."
            ) from None
        # The same files may have other partition values.
        same = PROVED if len(files) else IDENTICAL
        by, difference = (same, None) if gone == new else (None, "other rows")
    else:
        content = find_same_content(read_files_by_version(handle))
        by = content.evidence(start, end) if earlier >= content.first else None
        rows = totals["records_added"], totals["records_removed"]
        if None not in rows and (more := rows[0] - rows[1]):
            difference = f"{format_count(abs(more), 'row')} {'more' if more > 0 else 'fewer'}"
    return Diff(start, end, files, commits, **totals, same_content_by=by, difference=difference)


def _files_apart(snapshot: Snapshot, other: Snapshot, change: str) -> pa.Table:
    """Return the files of a version that another one lacks, with their numbers of live rows."""
    kept = pc.is_in(file_keys(snapshot.live), value_set=file_keys(other.live))
    found = Files(replace(snapshot, live=snapshot.live.filter(pc.invert(kept)))).to_arrow()
    records = pc.subtract(found["num_records"], pc.fill_null(found["deletion_vector_cardinality"], 0))
    columns = {"path": found["path"], "change": pa.repeat(change, len(found))}
    columns |= {"size_bytes": found["size_bytes"], "num_records": records}
    columns |= {name: found[name] for name in found.column_names if name.startswith(PARTITION)}
    return pa.table(columns)

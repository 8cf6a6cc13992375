"""The right answers of the exercises, computed from the tables, plans and stories that students make."""

import json
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from compaction_kit.interop import check_manifest
from compaction_kit.retention import LOG_PROPERTY, PROPERTY, parse_retention
from compaction_kit.sql import uri
from compaction_kit.text import KIB, format_count

_DAY = "time BETWEEN '2026-03-10 00:00:00' AND '2026-03-10 23:59:59'"
_MINUTES_A_YEAR = 365 * 24 * 60

# The right answer, and typical wrong ones with what they mean. A float may be missed by some per cent, a set
# has no order, and "|" separates names of one thing.
Answer = tuple[Any, list[tuple[Any, str]]]
# By exercise: what kind of answer is expected, what computes it, and its marks.
EXERCISES: dict[str, tuple[str, Callable[..., Answer], int]] = {}


class Unfinished(Exception):
    """What is given doesn't show the work that an exercise asks for; the message says what is missing."""


def exercise(number: str, kind: str, marks: int = 0) -> Callable[[Callable[..., Answer]], None]:
    """Keep a function as what computes the right answer of an exercise."""
    return lambda find: EXERCISES.update({number: (kind, find, marks)})


def _ask(is_done: object, sentence: str) -> None:
    if not is_done:
        raise Unfinished(sentence)


def _last(table: Any) -> dict[str, Any]:
    commit: dict[str, Any] = table.log.commits().to_pylist()[-1]
    return commit


def _rewrote(commit: dict[str, Any]) -> bool:
    """Whether a commit replaced files and says that no data changed."""
    return bool(commit["num_removed"]) and commit["data_change"] is False


def _columns(table: Any, name: str) -> list[str]:
    """The columns in a parameter of the last commit, zOrderBy or clusterBy."""
    columns: list[str] = json.loads(dict(_last(table)["parameters"] or ()).get(name, "[]"))
    return columns


def rows_of(files: Any) -> int:
    return pc.sum(files.to_arrow()["num_records"]).as_py() or 0


@exercise("01.1", "two numbers of files on average, at version 365 and at 366, such as (10.5, 9.2)")
def _(table: Any) -> Answer:
    _ask(table.version >= 366, "the table has no version 366: run the plan above")
    both = [table.files(version=version) for version in (365, 366)]
    right = [files.overlap("time_hour").mean for files in both]
    counts = [files.num_files for files in both]
    most = [files.overlap("time_hour").max for files in both]
    return right, [
        (counts, "these are all files, and a query skips most of them"),
        (most, "these are the files for the hour with the most, and the exercise asks for the average"),
    ]


@exercise("01.2", "a factor, bytes before by bytes after, such as 4.2")
def _(table: Any) -> Answer:
    _ask(_rewrote(_last(table)), "the last commit of this table is not a compaction: run a plan")
    before, after = table.files(version=table.version - 1), table.files()
    made = f"{before.num_files:,} files were compacted, and the exercise wants 200 in one partition"
    _ask(before.num_files == 200 and not before.partition_columns, made)
    right = before.size_bytes / after.size_bytes
    return right, [
        (1 / right, "these are bytes after by bytes before"),
        (200 / after.num_files, "these are files, and the exercise asks for bytes"),
        (before.size_bytes - after.size_bytes, "these are the bytes saved; divide before by after"),
    ]


@exercise("01.3", "two numbers of tasks")
def _(*versions: Any) -> Answer:
    right = [rows.rdd.getNumPartitions() for rows in versions]
    counts = [len(rows.inputFiles()) for rows in versions]
    limit = "this takes 128 MiB as the limit of both versions, and on a small table the cores set a lower one"
    return right, [(counts, "these are files, and a task takes several small ones"), ([36, 1], limit)]


@exercise("02.1", "names of files in a list")
def _(table: Any) -> Answer:
    rows = table.log.listing().to_pylist()
    names, needed = {row["name"] for row in rows}, [row for row in rows if row["needed"]]
    _ask("_last_checkpoint" not in names, "_last_checkpoint is still in the log: delete it first")
    commits = {row["name"] for row in needed if row["kind"] == "commit"}
    return {row["name"] for row in needed}, [
        (names, "that is the whole log, and a reader begins with the latest checkpoint"),
        (commits, "these commits continue a checkpoint, which a reader needs too"),
    ]


@exercise("02.2", 'an action, such as "metaData"')
def _(commit: Any, state: Any) -> Answer:
    kept = set(state["action"].to_pylist())
    right = (set(commit["action"].to_pylist()) - kept).pop()
    return right, [("|".join(kept), "the checkpoint has it, as it is part of the state")]


@exercise("02.3", "a set of paths")
def _(files: Any) -> Answer:
    return set(files.to_arrow()["path"].to_pylist()), []


@exercise("03.1", "a number of bins")
def _(plan: Any) -> Answer:
    alone, sizes = plan.steps["outcome"].to_pylist().count("alone"), plan.steps["size_bytes"].to_pylist()
    by_bytes = -(-sum(sizes) // plan.thresholds.max_file_size)
    return plan.num_bins + alone, [
        (plan.num_bins, "bins of a single file count as well"),
        (len(sizes), "these are files"),
        (by_bytes, "these are bytes divided by bytes, and a file can't be cut"),
    ]


@exercise("03.2", "a number of bins")
def _(table: Any, size: int) -> Answer:
    _ask("customer" in table.files().data_columns, "this table has no column customer")
    first = [commit for commit in table.log.commits().to_pylist() if _rewrote(commit)]
    _ask(first, "this table was never compacted")
    again = table.plan_compaction(max_file_size=size)
    enough = "the names must be 300, of 100 letters each, and the first plan have the same max_file_size"
    _ask(not again.is_empty, f"a second plan finds nothing to do in this table: {enough}")
    by_default = table.plan_compaction().num_bins
    return again.num_bins, [
        (first[-1]["num_added"], "these are the bins of the first plan"),
        (again.num_files_removed, "these are files"),
        (by_default, "this is by Delta's own thresholds: give max_file_size=MAX_FILE_SIZE"),
        (0, "a second plan has bins here: compact the table with customer once, and plan again"),
    ]


@exercise("03.3", "three numbers of files: now, after OPTIMIZE, by event_time, such as (9.5, 8.5, 7.5)")
def _(plan: Any) -> Answer:
    found = len(plan.steps), plan.thresholds.max_file_size // KIB
    made = "this plan has {} files and a max_file_size of {} KiB, and the exercise wants 60 and 256"
    _ask(found == (60, 256), made.format(*found))
    layouts = plan.compare("event_time").layouts
    columns = ("num_files", "point_files", "range_files")
    counts, points, right = ([layouts[name][row].as_py() for row in (0, 1, 3)] for name in columns)
    swapped = [right[0], right[2], right[1]]
    return right, [
        (counts, "these are all files of each"),
        (points, "this is for a single time, and the exercise asks for a range"),
        (swapped, "OPTIMIZE comes second, and the order by event_time third"),
    ]


@exercise("04.1", "a number of rows")
def _(commits: Any) -> Answer:
    is_append = pc.and_(pc.equal(commits["num_removed"], 0), pc.greater(commits["num_added"], 0))
    silent = commits.filter(pc.and_(is_append, pc.invert(commits["data_change"])))
    _ask(silent.num_rows, "no commit of this table appended rows with dataChange=false")
    right = pc.sum(commits.filter(commits["data_change"])["records_added"]).as_py()
    hidden = pc.sum(silent["records_added"]).as_py()
    return right, [
        (right + hidden, "these are all rows, and a stream passes over commits that say dataChange=false"),
        (hidden, "these are the rows that the stream doesn't deliver"),
        (0, "the stream delivers the rows of commits that say dataChange=true"),
    ]


@exercise("04.2", "a number of rows")
def _(table: Any) -> Answer:
    _ask(_rewrote(_last(table)), "the table's last commit is no overwrite with dataChange=false")
    before, right = rows_of(table.files(version=table.version - 1)), rows_of(table.files())
    read = "the overwrite has all rows of the version before it: let it read the version before the append"
    _ask(right < before, read)
    return right, [
        (before, "these are the rows after the append, and the overwrite hadn't read them all"),
        (before - right, "these are the rows that the overwrite lost"),
        (table.files().num_files, "these are files"),
    ]


@exercise("04.3", "a number of files")
def _(table: Any) -> Answer:
    _ask(_columns(table, "zOrderBy") == ["value"], 'the last commit of this table has no zorder_by="value"')
    now, before = table.files(), table.files(version=table.version - 1)
    return now.overlap("value").max, [
        (before.overlap("value").max, "that was before the plan"),
        (1, "Z-order moves rows within a partition, and never into another one"),
        (now.num_files, "these are all files"),
    ]


@exercise("05.1", "an exception of the table above")
def _(story: Any) -> Answer:
    name, wanted = story.scenario.name, "delete with compaction"
    _ask(name == wanted, f'this is the story "{name}", and the exercise wants "{wanted}"')
    earlier = "an earlier one of the five questions has a yes already"
    return story.exception, [
        ("ConcurrentDeleteReadException|ConcurrentDeleteDeleteException", earlier),
        ("ConcurrentTransactionException", "neither of the two is a stream"),
        ("MetadataChangedException|ProtocolChangedException", "a compaction changes files alone"),
    ]


@exercise("05.2", "one of the reasons")
def _(vacuum: Any) -> Answer:
    _ask(not vacuum.is_empty, "this plan takes nothing: plan for a later day")
    reasons = vacuum.files.filter(vacuum.files["since_version"].is_null())["reason"].to_pylist()
    _ask(reasons, "all files of this plan were in some version: is it a plan for story.table?")
    return reasons[0], [
        ("tombstone", "a commit removed those, and this file was in no version"),
        ("ConcurrentAppendException", "that is why the commit was refused, not why a file goes"),
    ]


@exercise("05.3", 'an operation, such as "WRITE"')
def _(log: Any) -> Answer:
    operations = log.commits()["operation"].to_pylist()
    _ask("DELETE" in operations, "nobody has deleted from this table yet")
    _ask("OPTIMIZE" not in operations, "the run has committed, so the delete came too late (or a second run)")
    _ask(not log.snapshot().live, "the table isn't empty: delete all rows")
    return operations[-1], [
        ("OPTIMIZE", "the run was refused, and has committed nothing"),
        ("|".join(operations[:2]), "that commit made the table"),
    ]


@exercise("06.1", "a share from 0 to 1")
def _(gone: Any, kept: Any) -> Answer:
    _ask(gone.version == kept.version, "the table has changed since this plan was made")
    many = f"this plan takes {gone.num_files:,} files and not four: plan after the delete, for in eight days"
    _ask(gone.num_files == 4, many)
    stored = gone.size_bytes + kept.size_bytes
    return gone.size_bytes / stored, [
        (0.01, "that is the share of the rows, and a file can't be changed"),
        (gone.size_bytes / kept.size_bytes, "divide by all that is stored, and not by what stays"),
        (float(gone.size_bytes), "these are bytes"),
    ]


@exercise("06.2", "a number of rows")
def _(files: Any) -> Answer:
    return rows_of(files), [
        (files.num_files, "these are files"),
        (files.size_bytes, "these are bytes"),
        (0, "the log has more than names of files"),
    ]


@exercise("06.3", 'a property, such as "delta.appendOnly"')
def _(log: Any) -> Answer:
    found = log.snapshot().metadata.configuration
    kept = [parse_retention(found.get(name, "0 days")) for name in (PROPERTY, LOG_PROPERTY)]
    _ask(min(kept) >= timedelta(60), "the table isn't readable 60 days back yet")
    return LOG_PROPERTY, [
        (PROPERTY, "that one is in the task, and Delta's error names another"),
        (LOG_PROPERTY.removeprefix("delta."), "write it with delta. in front"),
        (f"spark.databricks.{LOG_PROPERTY}", "Delta doesn't know this setting: give a property of the table"),
    ]


@exercise("07.1", "numbers in a list")
def _(folder: Path) -> Answer:
    right = {int(file.name) for file in folder.glob("[0-9]*")}
    _ask(0 not in right, "nothing was removed: set minBatchesToRetain, let files arrive, and run the stream")
    last = max(right)
    return right, [
        (right - {min(right)}, "Spark keeps three, and then begins one more"),
        ({*map(str, right)}, "these are names of files; give numbers"),
        ({*range(last + 1)}, "these are all batches, and Spark has removed some"),
        ({last}, "to continue, the stream needs this one, but Spark keeps more"),
    ]


@exercise("07.2", "two numbers of rows, such as (5, 6)")
def _(*sinks: Any) -> Answer:
    counts = [rows.count() for rows in sinks]
    right = [count - rows.distinct().count() for count, rows in zip(counts, sinks, strict=True)]
    missing = "no row came twice: let both streams copy the source, overwrite it, and run both again"
    _ask(any(right), missing)
    _ask(right[0] > right[1], "the sink of ignoreChanges comes first, and more rows came twice there")
    skips = "one of the two options skips the whole commit"
    return right, [([right[0]] * 2, skips), (counts, "these are all rows of the sinks")]


@exercise("07.3", "a number of commits")
def _(log: Any) -> Answer:
    versions = log.commits()["version"].to_pylist()
    actions = [row for version in versions for row in log.actions(version).to_pylist()]
    found = [json.loads(row["fields"])["txn"]["version"] for row in actions if row["action"] == "txn"]
    _ask(3 not in found, "batch 3 was written too: give all of them the same txnAppId, and write 5 first")
    _ask(found == [5, 6], f"the log has the batches {found}: write 5, 3 and 6, with txnAppId and txnVersion")
    late = "Delta doesn't write a batch unless its number is larger than the last one"
    return len(versions), [(3, late), (1, "a number may be left out"), (20, "these are rows")]


@exercise("08.1", "the number of a batch")
def _(policy: Any) -> Answer:
    return next(n for n in range(99) if policy.first_kept(n, 3)), [
        (2, "then the first compaction is written, and two batches have to follow it"),
        (3, "one batch has followed the compaction by then, and two are kept"),
        (7, "then the first compaction goes, and files went before it"),
    ]


@exercise("08.2", "a number of bytes")
def _(log: Any) -> Answer:
    entry = log.pace.entry_bytes
    return _MINUTES_A_YEAR * 200 * entry, [
        (float(_MINUTES_A_YEAR * 200), "this is the number of entries"),
        (_MINUTES_A_YEAR * entry, "this is with one file in each batch"),
        (24 * 60 * 200 * entry, "this is after a day"),
    ]


@exercise("08.3", "two numbers of rows, by the log and in the files, such as (8, 9)")
def _(rows: Any, paths: Iterable[Path]) -> Answer:
    lines = {path.name: len(path.read_text().splitlines()) for path in paths}
    read = {Path(path).name for path in rows.inputFiles()}
    _ask(read <= lines.keys(), "the rows are of other files than those of the output")
    right = [rows.count(), sum(lines.values())]
    _ask(right[0] < right[1], "the log still lists all files: run the stream up to its next compaction")
    by_folder, by_log = "a reader that goes by the log gets fewer", "a retention deletes no data file"
    return right, [([right[1]] * 2, by_folder), ([right[0]] * 2, by_log)]


@exercise("09.1", "two numbers of rows, in files not listed and in files not live, such as (8, 9)")
def _(table: Any) -> Answer:
    counts = {"live, not listed": 0, "listed, not live": 0}
    for file in check_manifest(table).files.to_pylist():
        if file["state"] in counts:
            counts[file["state"]] += pq.read_metadata(table.path / file["path"]).num_rows
    right = [*counts.values()]
    _ask(any(right), "the manifest lists what is live: delete a row after it is made")
    whole = "a file is listed as a whole, or not at all"
    return right, [([0, 1], whole), ([1, 0], whole), ([1, 1], whole)]


@exercise("09.2", "versions in a list")
def _(table: Any) -> Answer:
    commits = table.log.commits().to_pylist()
    right = {commit["version"] for commit in commits if commit["operation"] == "OPTIMIZE"}
    _ask(right, "OPTIMIZE hasn't run on this table yet")
    enough = "set maxFileSize to 30000 and batchSize to 1 before OPTIMIZE, on a new table"
    _ask(len(right) == 4, f"OPTIMIZE made {format_count(len(right), 'commit')}, not four: {enough}")
    whole = "each batch is a commit, and a batch here is one bin"
    return right, [
        *(({version}, whole) for version in right),
        ({*range(1, 5)}, "these are numbers of batches: the table had versions before"),
        ({*range(max(right) + 1)}, "the first ones of these made the table"),
    ]


@exercise("09.3", 'a type, such as "date"')
def _(table: Any) -> Answer:
    columns = {field["name"]: field["type"] for field in table.log.snapshot().metadata.schema["fields"]}
    _ask("code" in columns, "this table has no column code")
    lost = f"this table has the codes as {columns['code']}: convert with PARTITIONED BY (code STRING)"
    _ask(columns["code"] == "string", lost)
    found = table.spark.read.parquet(uri(table.path)).schema["code"].dataType
    # SQL and printSchema have names of their own for it.
    return f"{found.simpleString()}|{found.typeName()}", [
        ("string", "that is what you gave to CONVERT; without it, Spark infers a type from the values"),
        ("bigint", "the values are small, so a smaller type is enough"),
        ("date", "01 and 02 look like something simpler"),
    ]


@exercise("10.1", "two numbers of files, rewritten and left alone, such as (8, 9)")
def _(table: Any) -> Answer:
    last, num_files = _last(table), table.files().num_files
    is_clustered = last["operation"] == "OPTIMIZE" and _columns(table, "clusterBy")
    _ask(is_clustered, "the last commit of this table is not an OPTIMIZE of a clustered table")
    left = num_files - last["num_added"]
    again = "insert ten rows, set the threshold, and run OPTIMIZE again"
    _ask(left, f"OPTIMIZE has rewritten all files: {again}")
    right = [last["num_removed"], left]
    return right, [
        ([sum(right), 0], "that is with cubes of 100 GiB, and the threshold is lower now"),
        ([0, sum(right)], "a file that is in no cube is rewritten, even alone"),
        ([right[0], num_files], "the file that OPTIMIZE wrote was not left alone"),
    ]


@exercise("10.2", "a percentage")
def _(plan: Callable[[int], Any], gain: int) -> Answer:
    right = next(n for n in range(1, 101) if 2 * plan(n).gain >= gain)
    return right, [
        (50, "half of the bytes buys more than half of the gain"),
        (right / 100, "give it in hundredths"),
        (right - 1, "this buys a little less than half"),
        (right + 1, "a smaller one buys half as well"),
    ]


@exercise("10.3", "two numbers of files, for the customer and for the day, such as (8, 9)")
def _(table: Any) -> Answer:
    sort_first = 'put the airport\'s files of this table in Z-order by zorder_by="customer" first'
    _ask(_columns(table, "zOrderBy") == ["customer"], sort_first)
    rows = table.spark.read.format("delta").load(uri(table.path)).where("shop = 'airport'")
    right = [len(rows.where(one).inputFiles()) for one in ("customer = 777", _DAY)]
    whole = "a day has rows of all customers, so in how many files are they?"
    sorted_by = "the rows are sorted by customer, so few files have this one"
    return right, [([right[0]] * 2, whole), ([right[1]] * 2, sorted_by)]

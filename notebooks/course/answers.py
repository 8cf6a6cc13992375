"""The right answers of the exercises, computed from the tables, plans and stories that students make."""

import json
from collections.abc import Callable, Iterable, Iterator
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

# The right answer comes first, with an empty text; typical wrong answers follow, each with its explanation.
# A float has a tolerance of some per cent, a set has no order, and "|" separates accepted names.
Answers = Iterator[tuple[Any, str]]
# By exercise: the expected kind of answer, the function that computes the answers, and the marks.
EXERCISES: dict[str, tuple[str, Callable[..., Answers], int]] = {}


class Unfinished(Exception):
    """The given objects don't show the work that an exercise asks for; the message says what is missing."""


def exercise(number: str, kind: str, marks: int = 0) -> Callable[[Callable[..., Answers]], None]:
    """Register the function that computes the answers of an exercise."""
    return lambda find: EXERCISES.update({number: (kind, find, marks)})


def ask(is_done: object, sentence: str) -> None:
    """Raise Unfinished with `sentence` unless `is_done`."""
    if not is_done:
        raise Unfinished(sentence)


def rows_of(files: Any) -> int:
    """Return the number of rows in a version's files, including rows that a deletion vector deletes."""
    return pc.sum(files.to_arrow()["num_records"]).as_py() or 0


def _last(table: Any) -> Any:
    return table.log.commits().to_pylist()[-1]


def _rewrote(commit: dict[str, Any]) -> bool:
    """Whether a commit replaced files and says that no data changed."""
    return bool(commit["num_removed"]) and commit["data_change"] is False


def _columns(table: Any, name: str) -> Any:
    """Return the columns in a parameter of the last commit, zOrderBy or clusterBy."""
    return json.loads(dict(_last(table)["parameters"] or ()).get(name, "[]"))


@exercise("01.1", "two numbers of files on average, at version 365 and at 366, such as (10.5, 9.2)")
def _(table: Any) -> Answers:
    ask(table.version >= 366, "the table has no version 366: run the compaction above")
    both = [table.files(version=version).overlap("time_hour") for version in (365, 366)]
    yield [one.mean for one in both], ""
    yield [one.num_files for one in both], "these are all files, and a query skips most of them"
    yield [one.max for one in both], "this is the most, or rounded: give the averages with one decimal"


@exercise("01.2", "a factor, bytes before divided by bytes after, such as 4.2")
def _(table: Any) -> Answers:
    ask(_rewrote(_last(table)), "the last commit of this table is not a compaction: compact the table")
    before, after = table.files(version=table.version - 1), table.files()
    made = f"{before.num_files:,} files were compacted, and the exercise wants 200 in one partition"
    ask(before.num_files == 200 and not before.partition_columns, made)
    right = before.size_bytes / after.size_bytes
    yield right, ""
    yield 1 / right, "these are bytes after divided by bytes before"
    yield 200 / after.num_files, "these are files, and the exercise asks for bytes"
    yield before.size_bytes - after.size_bytes, "these are the bytes saved; divide before by after"


@exercise("01.3", "two numbers of tasks")
def _(*versions: Any) -> Answers:
    yield [rows.rdd.getNumPartitions() for rows in versions], ""
    yield [len(rows.inputFiles()) for rows in versions], "these are files, and a task has several small ones"
    yield [35, 1], "this takes 128 MiB as the limit, and for a small table the cores set a lower one"
    yield [36, 1], "a file fits if its own bytes do; and for a small table the cores set a lower limit"


@exercise("02.1", "names of files in a list")
def _(table: Any) -> Answers:
    rows = table.log.listing().to_pylist()
    names, needed = {row["name"] for row in rows}, [row for row in rows if row["needed"]]
    ask("_last_checkpoint" not in names, "_last_checkpoint is still in the log: delete it first")
    commits = {row["name"] for row in needed if row["kind"] == "commit"}
    yield {row["name"] for row in needed}, ""
    yield names, "that is the whole log, and a reader begins with the latest checkpoint"
    yield commits, "these commits continue a checkpoint, which a reader needs too"


@exercise("02.2", 'an action, such as "metaData"')
def _(commit: Any, state: Any) -> Answers:
    kept = set(state["action"].to_pylist())
    yield (set(commit["action"].to_pylist()) - kept).pop(), ""
    yield "|".join(kept), "the checkpoint has it, as it is part of the state"


@exercise("02.3", "a set of paths")
def _(files: Any) -> Answers:
    yield set(files.to_arrow()["path"].to_pylist()), ""


@exercise("03.1", "a number of bins")
def _(plan: Any) -> Answers:
    sizes = plan.steps["size_bytes"].to_pylist()
    by_bytes = -(-sum(sizes) // plan.thresholds.max_file_size)
    yield plan.num_bins + plan.steps["outcome"].to_pylist().count("alone"), ""
    yield plan.num_bins, "bins of a single file count as well"
    yield len(sizes), "these are files"
    yield by_bytes, "this is all bytes divided by the size of a bin, but a file can't be split over two bins"


@exercise("03.2", "a number of bins")
def _(table: Any, size: int) -> Answers:
    ask("customer" in table.files().data_columns, "this table has no column customer")
    first = [commit for commit in table.log.commits().to_pylist() if _rewrote(commit)]
    ask(first, "this table was never compacted")
    again = table.plan_compaction(max_file_size=size)
    enough = "there must be 300 names of 100 characters, and the first plan must have the same max_file_size"
    ask(not again.is_empty, f"a second plan finds nothing to do in this table: {enough}")
    yield again.num_bins, ""
    yield first[-1]["num_added"], "these are the bins of the first plan"
    yield again.num_files_removed, "these are files"
    yield table.plan_compaction().num_bins, "by Delta's own thresholds: give max_file_size=MAX_FILE_SIZE"
    yield 0, "a second plan has bins here: compact the table with customer once, and plan again"


@exercise("03.3", "three numbers of files: now, after OPTIMIZE, by event_time, such as (9.5, 8.5, 7.5)")
def _(plan: Any) -> Answers:
    found = len(plan.steps), plan.thresholds.max_file_size // KIB
    made = "this plan has {} files and a max_file_size of {} KiB, and the exercise wants 60 and 256"
    ask(found == (60, 256), made.format(*found))
    layouts = plan.compare("event_time").layouts.take([0, 1, 3])
    now, optimized, by_time = layouts["range_files"].to_pylist()
    yield [now, optimized, by_time], ""
    yield layouts["num_files"].to_pylist(), "these are all files of each"
    yield layouts["point_files"].to_pylist(), "this is for a single time, and the exercise asks for a range"
    yield [now, by_time, optimized], "OPTIMIZE comes second, and the order by event_time third"


@exercise("04.1", "a number of rows")
def _(commits: Any) -> Answers:
    is_append = pc.and_(pc.equal(commits["num_removed"], 0), pc.greater(commits["num_added"], 0))
    silent = commits.filter(pc.and_(is_append, pc.invert(commits["data_change"])))
    ask(silent.num_rows, "no commit of this table appended rows with dataChange=false")
    right = pc.sum(commits.filter(commits["data_change"])["records_added"]).as_py()
    hidden = pc.sum(silent["records_added"]).as_py()
    yield right, ""
    yield right + hidden, "these are all rows, and a stream skips commits that say dataChange=false"
    yield hidden, "these are the rows that the stream doesn't deliver"
    yield 0, "the stream delivers the rows of commits that say dataChange=true"


@exercise("04.2", "a number of rows")
def _(table: Any) -> Answers:
    ask(_rewrote(_last(table)), "the table's last commit is no overwrite with dataChange=false")
    before, right = rows_of(table.files(version=table.version - 1)), rows_of(table.files())
    ask(right < before, "the overwrite lost no row: let it read the version before the append")
    yield right, ""
    yield before, "these are the rows after the append, and the overwrite hadn't read them all"
    yield before - right, "these are the rows that the overwrite lost"
    yield table.files().num_files, "these are files"


@exercise("04.3", "a number of files")
def _(table: Any) -> Answers:
    ask(_columns(table, "zOrderBy") == ["value"], 'the last commit of this table has no zorder_by="value"')
    now, before = table.files(), table.files(version=table.version - 1)
    yield now.overlap("value").max, ""
    yield before.overlap("value").max, "that was before the plan"
    yield 1, "Z-order moves rows within a partition, and never into another one"
    yield now.num_files, "these are all files"


@exercise("05.1", 'the name of an exception in the table above, such as "ProtocolChangedException"')
def _(story: Any) -> Answers:
    name, wanted = story.scenario.name, "delete with compaction"
    ask(name == wanted, f'this is the story "{name}", and the exercise wants "{wanted}"')
    earlier = "the answer to an earlier question is already yes"
    yield story.exception, ""
    yield "ConcurrentDeleteReadException|ConcurrentDeleteDeleteException", earlier
    yield "ConcurrentTransactionException", "neither of the two is a stream"
    yield "MetadataChangedException|ProtocolChangedException", "a compaction changes only files"


@exercise("05.2", "a reason from the files of the plan, as text")
def _(vacuum: Any) -> Answers:
    ask(not vacuum.is_empty, "this plan deletes nothing: plan for a later day")
    reasons = vacuum.files.filter(vacuum.files["since_version"].is_null())["reason"].to_pylist()
    ask(reasons, "all files of this plan were in some version: is it a plan for story.table?")
    yield reasons[0], ""
    yield "tombstone", "a commit removed those, and this file was in no version"
    yield "ConcurrentAppendException", "that is why the commit was refused, not why a file goes"


@exercise("05.3", 'an operation, such as "WRITE"')
def _(log: Any) -> Answers:
    operations = log.commits()["operation"].to_pylist()
    ask("DELETE" in operations, "nobody has deleted from this table yet")
    ask("OPTIMIZE" not in operations, "the run has committed, so the delete came too late (or a second run)")
    ask(not log.snapshot().live, "the table isn't empty: delete all rows")
    yield operations[-1], ""
    yield "OPTIMIZE", "the run was refused, and has committed nothing"
    yield "|".join(operations[:2]), "that commit made the table"


@exercise("06.1", "a share from 0 to 1")
def _(gone: Any, kept: Any) -> Answers:
    ask(gone.version == kept.version, "the table has changed since this plan was made")
    wanted = "plan at=in_eight_days, after the delete and before exercise 3"
    ask(gone.num_files == 4, f"this plan deletes {gone.num_files:,} files and not four: {wanted}")
    share = gone.size_bytes / (gone.size_bytes + kept.size_bytes)
    yield share, ""
    yield 0.5, "compute it from the bytes of the plan and the bytes that stay"
    yield 100 * share, "give a share, not per cent"
    yield 0.01, "that is the share of the rows, and a file can't be changed"
    yield gone.size_bytes / kept.size_bytes, "divide by all that is stored, and not by what stays"
    yield float(gone.size_bytes), "these are bytes"


@exercise("06.2", "a number of rows")
def _(files: Any) -> Answers:
    yield rows_of(files), ""
    yield files.num_files, "these are files"
    yield files.size_bytes, "these are bytes"
    yield 0, "the log has more than names of files"


@exercise("06.3", 'a property, such as "delta.appendOnly"')
def _(log: Any) -> Answers:
    found = log.snapshot().metadata.configuration
    kept = [parse_retention(found.get(name, "0 days")) for name in (PROPERTY, LOG_PROPERTY)]
    ask(min(kept) >= timedelta(60), "the table isn't readable 60 days back yet")
    yield LOG_PROPERTY, ""
    yield PROPERTY, "that one is in the task, and Delta's error names another"
    yield LOG_PROPERTY.removeprefix("delta."), "write it with delta. in front"
    yield f"spark.databricks.{LOG_PROPERTY}", "Delta doesn't know this setting: give a property of the table"


@exercise("07.1", "numbers in a list")
def _(folder: Path) -> Answers:
    right = {int(file.name) for file in folder.glob("[0-9]*")}
    ask(0 not in right, "nothing was removed: set minBatchesToRetain, let files arrive, and run the stream")
    yield right, ""
    yield right - {min(right)}, "Spark keeps three, and then begins one more"
    yield {*map(str, right)}, "these are names of files; give numbers"
    yield {*range(max(right) + 1)}, "these are all batches, and Spark has removed some"
    yield {max(right)}, "to continue, the stream needs this one, but Spark keeps more"


@exercise("07.2", "two numbers of rows, such as (5, 6)")
def _(*sinks: Any) -> Answers:
    counts = [rows.count() for rows in sinks]
    right = [count - rows.distinct().count() for count, rows in zip(counts, sinks, strict=True)]
    ask(any(right), "no row came twice: let both streams copy the source, overwrite it, and run both again")
    ask(right[0] > right[1], "the sink of ignoreChanges comes first, and more rows came twice there")
    yield right, ""
    yield [right[0]] * 2, "one of the two options skips the whole commit"
    yield counts, "these are all rows of the sinks"


@exercise("07.3", "a number of commits")
def _(log: Any) -> Answers:
    versions = log.commits()["version"].to_pylist()
    actions = [row for version in versions for row in log.actions(version).to_pylist()]
    found = [json.loads(row["fields"])["txn"]["version"] for row in actions if row["action"] == "txn"]
    ask(3 not in found, "batch 3 was written too: give all of them the same txnAppId, and write 5 first")
    ask(found == [5, 6], f"the log has the batches {found}: write 5, 3 and 6, with txnAppId and txnVersion")
    yield len(versions), ""
    yield 3, "Delta writes a batch only if its number is larger than the last one"
    yield 1, "the numbers needn't be consecutive"
    yield 20, "these are rows"


@exercise("08.1", "the number of a batch")
def _(policy: Any) -> Answers:
    yield next(n for n in range(99) if policy.first_kept(n, 3)), ""
    yield 2, "then the first compaction is written, and two batches have to follow it"
    yield 3, "one batch has followed the compaction by then, and two are kept"
    yield 7, "then the first compaction is removed, and the files before it are removed earlier"


@exercise("08.2", "a number of bytes")
def _(log: Any) -> Answers:
    entry = log.pace.entry_bytes
    yield _MINUTES_A_YEAR * 200 * entry, ""
    yield float(_MINUTES_A_YEAR * 200), "this is the number of entries"
    yield _MINUTES_A_YEAR * entry, "this is with one file in each batch"
    yield 24 * 60 * 200 * entry, "this is after a day"


@exercise("08.3", "two numbers of rows, by the log and in the files, such as (8, 9)")
def _(rows: Any, paths: Iterable[Path]) -> Answers:
    lines = {path.name: len(path.read_text().splitlines()) for path in paths}
    read = {Path(path).name for path in rows.inputFiles()}
    ask(read <= lines.keys(), "the rows are of other files than those of the output")
    listed, stored = rows.count(), sum(lines.values())
    ask(listed < stored, "the log still lists all files: run the stream up to its next compaction")
    yield [listed, stored], ""
    yield [stored, stored], "a reader that goes by the log gets fewer"
    yield [listed, listed], "a retention deletes no data file"


@exercise("09.1", "two numbers of rows, in live files not listed and listed files not live, such as (8, 9)")
def _(table: Any) -> Answers:
    counts = {"live, not listed": 0, "listed, not live": 0}
    for file in check_manifest(table).files.to_pylist():
        if file["state"] in counts:
            counts[file["state"]] += pq.read_metadata(table.path / file["path"]).num_rows
    ask(any(counts.values()), "the manifest lists what is live: delete a row after it is made")
    yield [*counts.values()], ""
    for pair in ([0, 1], [1, 0], [1, 1]):
        yield pair, "a file is listed as a whole, or not at all"


@exercise("09.2", "versions in a list")
def _(table: Any) -> Answers:
    commits = table.log.commits().to_pylist()
    right = {commit["version"] for commit in commits if commit["operation"] == "OPTIMIZE"}
    ask(right, "OPTIMIZE hasn't run on this table yet")
    enough = "set maxFileSize to 30000 and batchSize to 1 before OPTIMIZE, on a new table"
    ask(len(right) == 4, f"OPTIMIZE made {format_count(len(right), 'commit')}, not four: {enough}")
    yield right, ""
    yield {*map(str, right)}, "these are texts; give numbers"
    for version in right:
        yield {version}, "each batch is a commit, and a batch here is one bin"
    yield {*range(1, 5)}, "these are numbers of batches: the table had versions before"
    yield {*range(max(right) + 1)}, "the first ones of these made the table"


@exercise("09.3", 'a type, such as "date"')
def _(table: Any) -> Answers:
    columns = {field["name"]: field["type"] for field in table.log.snapshot().metadata.schema["fields"]}
    ask("code" in columns, "this table has no column code")
    lost = f"this table has the codes as {columns['code']}: convert with PARTITIONED BY (code STRING)"
    ask(columns["code"] == "string", lost)
    found = table.spark.read.parquet(uri(table.path)).schema["code"].dataType
    # SQL, printSchema and Python use different names for a type.
    yield f"{found.simpleString()}|{found.typeName()}|{type(found).__name__}|{found!r}", ""
    yield "string", "that is what you gave to CONVERT; without it, Spark infers a type from the values"
    yield "bigint|long", "the values are small, so a smaller type is enough"
    yield "date", "01 and 02 look like something simpler"


@exercise("10.1", "two numbers of files, rewritten and left alone, such as (8, 9)")
def _(table: Any) -> Answers:
    last, num_files = _last(table), table.files().num_files
    is_clustered = last["operation"] == "OPTIMIZE" and _columns(table, "clusterBy")
    ask(is_clustered, "the last commit of this table is not an OPTIMIZE of a clustered table")
    removed, left = last["num_removed"], num_files - last["num_added"]
    ask(left, "OPTIMIZE has rewritten all files: insert ten rows, set the threshold, and run it again")
    yield [removed, left], ""
    yield [removed + left, 0], "that is with cubes of 100 GiB, and the threshold is lower now"
    yield [0, removed + left], "a file that is in no cube is rewritten, even alone"
    yield [removed, num_files], "the file that OPTIMIZE wrote was not left alone"


@exercise("10.2", "a percentage as a number, such as 33")
def _(plan: Callable[[int], Any], gain: int) -> Answers:
    right = next(n for n in range(1, 101) if 2 * plan(n).gain >= gain)
    yield right, ""
    yield 50, "half of the bytes buys more than half of the gain"
    yield right / 100, "give it in per cent"
    yield right - 1, "this buys a little less than half"
    for more in range(right + 1, 101):
        yield more, "a smaller one buys half as well"


@exercise("10.3", "two numbers of files, for the customer and for the day, such as (8, 9)")
def _(table: Any) -> Answers:
    ask(_columns(table, "zOrderBy") == ["customer"], "put the airport's files in Z-order by customer first")
    rows, queries = table.spark.read.format("delta").load(uri(table.path)), ("customer = 777", _DAY)
    customer, day = (len(rows.where(f"shop = 'airport' AND {one}").inputFiles()) for one in queries)
    yield [customer, day], ""
    yield [len(rows.where(one).inputFiles()) for one in queries], "these are files of all shops, not of one"
    yield [customer, customer], "a day has rows of all customers, so they are in more files"
    yield [day, day], "the rows are sorted by customer, so few files have this one"

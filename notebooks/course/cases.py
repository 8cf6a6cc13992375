"""The right answers of the museum's cases, computed from their tables, with their marks."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from course import read_ids
from course.answers import Answers, ask, exercise, rows_of
from course.museum import fields


def _parts(right: list[Any], *meanings: Mapping[Any, str]) -> Answers:
    """Yield the right answer of several values, then answers with one wrong value and its explanation."""
    yield right, ""
    for place, wrongs in enumerate(meanings):
        for wrong, meaning in wrongs.items():
            if wrong != right[place]:
                yield [*right[:place], wrong, *right[place + 1 :]], meaning


def _replacing(table: Any, data_change: bool = False) -> int:
    """Return the first version that replaced files."""
    commits = table.log.commits().to_pylist()
    return next(c["version"] for c in commits if c["num_removed"] and c["data_change"] is data_change)


@exercise("museum.1", "a number of files", 5)
def _(table: Any) -> Answers:
    removed = fields(table.path, _replacing(table), "remove")
    gone = [file for file in removed if not (table.path / file["path"]).exists()]
    metrics = (dict(metrics or ()) for metrics in table.log.commits()["metrics"].to_pylist())
    deleted = next(int(found["numDeletedFiles"]) for found in metrics if "numDeletedFiles" in found)
    yield len(gone), ""
    yield deleted, "these are all files that the vacuum deleted, and some of them were in no version"
    yield len(removed), "these are all files that OPTIMIZE removed, and some of them are still there"
    yield len(removed) - len(gone), "these are the files that OPTIMIZE removed and that are still there"
    yield 0, "the retention counts from the time of the removal, deletionTimestamp in the log"


@exercise("museum.2", "a version and a number of rows, such as (8, 900)", 5)
def _(table: Any) -> Answers:
    version = _replacing(table)
    before, after = (rows_of(table.files(version=number)) for number in (version - 1, version))
    versions = {
        version - 1: "that version has each row once",
        version + 1: "the rows were doubled before: compare the sums of each version",
    }
    rows = {
        after: "these are all rows of that version, and half of them are right",
        rows_of(table.files()) - before: "the last append is in this number, and its rows are new",
        0: "count the rows before and after this version",
    }
    return _parts([version, after - before], versions, rows)


@exercise("museum.3", 'a field of an action and a number of rows, such as ("stats", 900)', 6)
def _(table: Any) -> Answers:
    version = _replacing(table)
    before, after = (table.files(version=number).to_arrow().to_pylist() for number in (version - 1, version))
    paths = {file["path"] for file in after}
    kept = [file for file in before if file["path"] in paths]
    records = sum(file["num_records"] for file in kept)
    deleted = sum(file["deletion_vector_cardinality"] for file in kept)
    there = {name for action in fields(table.path, version, "remove") for name in action}
    rows = {
        records: "the file has this number of rows, and some of them are deleted",
        deleted: "these rows are deleted, and no reader gets them",
        sum(file["num_records"] for file in after) - deleted: "these are all rows that a reader gets",
        0: "count the rows that a reader gets, and the different ids among them",
    }
    names = dict.fromkeys(there, "the remove actions have this field, and it is right")
    return _parts(["deletionVector", records - deleted], names, rows)


@exercise("museum.4", "a factor, such as 2.5", 5)
def _(table: Any) -> Answers:
    commits = table.log.commits().to_pylist()
    last = max(commit["version"] for commit in commits if commit["operation"] == "OPTIMIZE")
    since = [commit for commit in commits if commit["version"] > last]
    ask(since, "tonight's OPTIMIZE has run: make the table again")
    plan = table.plan_compaction()
    new, new_files = (sum(commit[name] for commit in since) for name in ("bytes_added", "num_added"))
    right = plan.bytes_removed / new
    yield right, ""
    yield 1.0, "OPTIMIZE rewrites more than the new files"
    yield 1 / right, "these are the new bytes divided by the rewritten ones"
    yield right - 1, "the new files are rewritten as well"
    yield float(plan.bytes_removed), "these are bytes, and the exercise asks for a factor"
    yield plan.num_files_removed / new_files, "these are files, and bytes are wanted"


@exercise("museum.5", "a number of files", 5)
def _(table: Any) -> Answers:
    commits = [row for row in table.log.commits().to_pylist() if row["operation"] == "WRITE"]
    by_spark = sum(row["num_added"] for row in commits if row["engine"].startswith("Apache-Spark"))
    everything = sum(row["num_added"] for row in commits)
    yield by_spark, ""
    yield everything, "these are all small files, and Delta counts only some of them"
    yield everything - by_spark, "these are the files of the other writer, which has no auto compaction"
    yield 50, "that is the limit, spark.databricks.delta.autoCompact.minNumFiles"
    yield 0, "the session has added files: see engineInfo in the history"


@exercise("museum.6", "two numbers of bytes, today and in eight days, such as (400, 500)", 4)
def _(table: Any) -> Answers:
    today, later = (table.plan_vacuum(at=at).size_bytes for at in (None, datetime.now(UTC) + timedelta(8)))
    live = table.files().size_bytes
    now = {
        later: "removed files are kept for a week, and these were removed just now",
        live: "no vacuum deletes files of the latest version",
    }
    then = {
        0: "in eight days the files have been removed for more than a week",
        live: "these are the live files, and no vacuum deletes those",
        live + later: "this is everything on disk, the live files too",
    }
    return _parts([today, later], now, then)


@exercise("museum.7", "a version of the source and a number of rows, such as (8, 900)", 5)
def _(source: Any, sink: Any) -> Answers:
    commits, rows = sink.log.commits().to_pylist(), len({*read_ids(sink.spark, sink.path)})
    delivered = sum(row["records_added"] for row in commits if row["operation"] == "STREAMING UPDATE")
    adding = "this commit only adds rows, and they are in the sink once"
    twice = {
        delivered: "these are all rows of the sink",
        rows: "these are the rows of the source, which the sink should have",
        0: "compare count(*) with count(DISTINCT id) in the sink",
    }
    versions = dict.fromkeys(range(source.version + 1), adding)
    return _parts([_replacing(source, data_change=True), delivered - rows], versions, twice)


@exercise("museum.8", 'an option of the sink and a number of entries, such as ("path", 900)', 5)
def _(log: Any) -> Answers:
    counts = log.files["num_entries"].to_pylist()
    kept = "it decides when files of the log go"
    options = {
        "deletion": "it decides about files of the log, and entries stay",
        "cleanupDelay": kept,
        "minBatchesToRetain": kept,
        "compactInterval": "with another interval a compaction has all entries as well",
        "maxFilesPerTrigger": "that is an option of a source, and it changes no entry",
    }
    entries = {
        sum(counts): "these are the entries of all files, and a compaction repeats those before it",
        log.compactions["num_entries"].to_pylist()[-1]: "a reader also needs the batches after that file",
        len(counts): "these are the files of the log",
        counts[-1]: "these are the entries of one batch",
    }
    return _parts(["retention", log.num_entries], options, entries)

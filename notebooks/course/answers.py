"""What is right in the lessons' exercises: computed from the tables, plans and stories that students make."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.compute as pc
import pyarrow.parquet as pq

from compaction_kit.interop import check_manifest
from compaction_kit.sql import uri
from compaction_kit.text import KIB

_DAY = "time BETWEEN '2026-03-10 00:00:00' AND '2026-03-10 23:59:59'"
_FILES_KEPT, _LOG_KEPT = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
_MINUTES_A_YEAR = 365 * 24 * 60
_REVERSED = "the numbers are in the wrong order"


# What kind of answer is expected, and what computes it, by exercise. A float may be missed by some per cent.
ANSWERS: dict[str, tuple[str, Callable[..., "Truth"]]] = {}
_Find = TypeVar("_Find", bound=Callable[..., "Truth"])


class Unfinished(Exception):
    """What is given doesn't show the work that an exercise asks for; the message says what is missing."""


@dataclass(frozen=True)
class Truth:
    """The right answer of an exercise, and typical wrong ones, each with what it means."""

    right: Any
    mistakes: Iterable[tuple[Any, str]] = ()


def _exercise(number: str, kind: str) -> Callable[[_Find], _Find]:
    def register(find: _Find) -> _Find:
        ANSWERS[number] = kind, find
        return find

    return register


def _ask(is_done: object, sentence: str) -> None:
    if not is_done:
        raise Unfinished(sentence)


def _last(log: Any) -> dict[str, Any]:
    commit: dict[str, Any] = log.commits().to_pylist()[-1]
    return commit


def _rewrote(commit: dict[str, Any]) -> bool:
    """Whether a commit replaced files and says that no data changed."""
    return bool(commit["num_removed"]) and commit["data_change"] is False


def _zorder_of(table: Any) -> Any:
    """The columns by which the last commit sorted the rows."""
    return json.loads(dict(_last(table.log)["parameters"] or ()).get("zOrderBy", "[]"))


def _rows(files: Any) -> int:
    return pc.sum(files.to_arrow()["num_records"]).as_py() or 0


@_exercise("01.1", "two numbers of files on average, at version 365 and at 366, such as (10.5, 9.2)")
def _files_of_an_hour(table: Any) -> Truth:
    _ask(table.version >= 366, "the table has no version 366: run the plan above")
    both = [table.files(version=version) for version in (365, 366)]
    right = [files.overlap("time_hour").mean for files in both]
    counts = [files.num_files for files in both]
    return Truth(right, [(counts, "these are all files, and a query skips most of them"), _turned(right)])


def _turned(right: list[Any]) -> tuple[list[Any], str]:
    return right[::-1], _REVERSED


@_exercise("01.2", "a factor, bytes before by bytes after, such as 4.2")
def _shrunk(table: Any) -> Truth:
    _ask(_rewrote(_last(table.log)), "the last commit of this table is not a compaction: run a plan")
    before, after = table.files(version=table.version - 1), table.files()
    made = f"{before.num_files:,} files were compacted, and the exercise wants 200 in one partition"
    _ask(before.num_files == 200 and not before.partition_columns, made)
    right = before.size_bytes / after.size_bytes
    mistakes = [(1 / right, "these are bytes after by bytes before")]
    return Truth(
        right, [*mistakes, (200 / after.num_files, "these are files, and the exercise asks for bytes")]
    )


@_exercise("01.3", "two numbers of tasks")
def _tasks(*versions: Any) -> Truth:
    right = [rows.rdd.getNumPartitions() for rows in versions]
    counts = [len(rows.inputFiles()) for rows in versions]
    only_most = (
        "this takes 128 MiB as the limit of both versions, and on a small table the cores set a lower one"
    )
    mistakes = [(counts, "these are files, and a task takes several small ones")]
    return Truth(right, [*mistakes, ([36, 1], only_most), ([35, 1], only_most), _turned(right)])


@_exercise("02.1", "names of files in a list")
def _needed(table: Any) -> Truth:
    rows = table.log.listing().to_pylist()
    names = {row["name"] for row in rows}
    _ask("_last_checkpoint" not in names, "_last_checkpoint is still in the log: delete it first")
    right = {row["name"] for row in rows if row["needed"]}
    commits = {row["name"] for row in rows if row["needed"] and row["kind"] == "commit"}
    mistakes = [(names, "that is the whole log, and a reader begins with the latest checkpoint")]
    return Truth(
        right, [*mistakes, (commits, "these commits continue a checkpoint, which a reader needs too")]
    )


@_exercise("02.2", 'an action, such as "metaData"')
def _only_in_commits(commit: Any, state: Any) -> Truth:
    kept = set(state["action"].to_pylist())
    right = (set(commit["action"].to_pylist()) - kept).pop()
    return Truth(right, [(action, "the checkpoint has it, as it is part of the state") for action in kept])


@_exercise("02.3", "a set of paths")
def _live(files: Any) -> Truth:
    return Truth(set(files.to_arrow()["path"].to_pylist()))


@_exercise("03.1", "a number of bins")
def _first_fit(plan: Any) -> Truth:
    alone, sizes = plan.steps["outcome"].to_pylist().count("alone"), plan.steps["size_bytes"].to_pylist()
    mistakes = [
        (plan.num_bins, "bins of a single file count as well"),
        (len(sizes), "these are files"),
        (
            -(-sum(sizes) // plan.thresholds.max_file_size),
            "these are bytes divided by bytes, and a file can't be cut",
        ),
    ]
    return Truth(plan.num_bins + alone, mistakes)


@_exercise("03.2", "a number of bins")
def _left_for_a_second_plan(table: Any, size: int) -> Truth:
    _ask("customer" in table.files().data_columns, "this table has no column customer")
    first = [commit for commit in table.log.commits().to_pylist() if _rewrote(commit)]
    _ask(first, "this table was never compacted")
    again = table.plan_compaction(max_file_size=size)
    enough = "the names must be 300, of 100 letters each, and the first plan have the same max_file_size"
    _ask(not again.is_empty, f"a second plan finds nothing to do in this table: {enough}")
    mistakes = [
        (first[-1]["num_added"], "these are the bins of the first plan"),
        (again.num_files_removed, "these are files"),
        (
            table.plan_compaction().num_bins,
            "this is by Delta's own thresholds: give max_file_size=MAX_FILE_SIZE",
        ),
    ]
    return Truth(again.num_bins, mistakes)


@_exercise("03.3", "three numbers of files: now, after OPTIMIZE, by event_time, such as (9.5, 8.5, 7.5)")
def _touched(plan: Any) -> Truth:
    found = len(plan.steps), plan.thresholds.max_file_size // KIB
    made = "this plan has {} files and a max_file_size of {} KiB, and the exercise wants 60 and 256"
    _ask(found == (60, 256), made.format(*found))
    layouts = plan.compare("event_time").layouts
    counts, points, right = (
        [layouts[name][row].as_py() for row in (0, 1, 3)]
        for name in ("num_files", "point_files", "range_files")
    )
    mistakes = [
        (counts, "these are all files of each"),
        (points, "this is for a single time, and the exercise asks for a range"),
        ([right[0], right[2], right[1]], "OPTIMIZE comes second, and the order by event_time third"),
    ]
    return Truth(right, mistakes)


@_exercise("04.1", "a number of rows")
def _delivered(commits: Any) -> Truth:
    appended = commits.filter(
        pc.and_(pc.equal(commits["num_removed"], 0), pc.greater(commits["num_added"], 0))
    )
    silent = appended.filter(pc.invert(appended["data_change"]))
    _ask(silent.num_rows, "no commit of this table appended rows with dataChange=false")
    right = pc.sum(commits.filter(commits["data_change"])["records_added"]).as_py()
    hidden = pc.sum(silent["records_added"]).as_py()
    mistakes = [
        (right + hidden, "these are all rows, and a stream passes over commits that say dataChange=false"),
        (hidden, "these are the rows that the stream doesn't deliver"),
    ]
    return Truth(right, mistakes)


@_exercise("04.2", "a number of rows")
def _left_by_the_recipe(table: Any) -> Truth:
    _ask(_rewrote(_last(table.log)), "the table's last commit is no overwrite with dataChange=false")
    before, right = _rows(table.files(version=table.version - 1)), _rows(table.files())
    read = "the overwrite has all rows of the version before it: let it read the version before the append"
    _ask(right < before, read)
    return Truth(
        right, [(before, "these are the rows after the append, and the overwrite hadn't read them all")]
    )


@_exercise("04.3", "a number of files")
def _in_z_order(table: Any) -> Truth:
    _ask(_zorder_of(table) == ["value"], 'the last commit of this table has no zorder_by="value"')
    now, before = table.files(), table.files(version=table.version - 1)
    mistakes = [
        (before.overlap("value").max, "that was before the plan"),
        (1, "Z-order moves rows within a partition, and never into another one"),
        (now.num_files, "these are all files"),
    ]
    return Truth(now.overlap("value").max, mistakes)


@_exercise("05.1", "an exception of the table above")
def _refused(story: Any) -> Truth:
    name, wanted = story.scenario.name, "delete with compaction"
    _ask(name == wanted, f'this is the story "{name}", and the exercise wants "{wanted}"')
    mistakes = [
        ("ConcurrentDeleteReadException", "an earlier one of the five questions has a yes already"),
        ("ConcurrentDeleteDeleteException", "an earlier one of the five questions has a yes already"),
        ("ConcurrentTransactionException", "neither of the two is a stream"),
        ("MetadataChangedException", "a compaction changes files alone"),
        ("ProtocolChangedException", "a compaction changes files alone"),
    ]
    return Truth(story.refusal.exception, mistakes)


@_exercise("05.2", "one of the reasons")
def _left_behind(vacuum: Any) -> Truth:
    _ask(not vacuum.is_empty, "this plan takes nothing: plan for a later day")
    reasons = vacuum.files.filter(vacuum.files["since_version"].is_null())["reason"].to_pylist()
    _ask(reasons, "all files of this plan were in some version: is it a plan for story.table?")
    return Truth(reasons[0], [("tombstone", "a commit removed those, and this file was in no version")])


@_exercise("05.3", 'an operation, such as "WRITE"')
def _last_operation(log: Any) -> Truth:
    operations = log.commits()["operation"].to_pylist()
    _ask("DELETE" in operations, "nobody has deleted from this table yet")
    _ask("OPTIMIZE" not in operations, "the run has committed, so the delete came too late (or a second run)")
    _ask(not log.snapshot().live, "the table isn't empty: delete all rows")
    mistakes = [
        ("OPTIMIZE", "the run was refused, and has committed nothing"),
        ("WRITE", "that commit made the table"),
    ]
    return Truth(operations[-1], mistakes)


@_exercise("06.1", "a share from 0 to 1")
def _freed(gone: Any, kept: Any) -> Truth:
    _ask(gone.version == kept.version, "the table has changed since this plan was made")
    many = f"this plan takes {gone.num_files:,} files and not four: plan after the delete, for in eight days"
    _ask(gone.num_files == 4, many)
    stored = gone.size_bytes + kept.size_bytes
    mistakes = [
        (0.01, "that is the share of the rows, and a file can't be changed"),
        (kept.size_bytes / stored, "that is what stays"),
        (gone.size_bytes / kept.size_bytes, "divide by all that is stored, and not by what stays"),
        (float(gone.size_bytes), "these are bytes"),
    ]
    return Truth(gone.size_bytes / stored, mistakes)


@_exercise("06.2", "a number of rows")
def _counted(files: Any) -> Truth:
    return Truth(
        _rows(files), [(files.num_files, "these are files"), (0, "the log has more than names of files")]
    )


@_exercise("06.3", 'a property, such as "delta.appendOnly"')
def _retention(log: Any) -> Truth:
    found = log.snapshot().metadata.configuration
    days = {name: found.get(name, "") for name in (_FILES_KEPT, _LOG_KEPT)}
    _ask(all("60" in value for value in days.values()), "the table isn't readable 60 days back yet")
    mistakes = [
        (_FILES_KEPT, "that one is in the task, and Delta's error names another"),
        (_LOG_KEPT.removeprefix("delta."), "write it with delta. in front"),
    ]
    return Truth(_LOG_KEPT, mistakes)


@_exercise("07.1", "numbers in a list")
def _notes(folder: Path) -> Truth:
    right = sorted(int(file.name) for file in folder.glob("[0-9]*"))
    _ask(right, "there are no batches")
    _ask(right[-1] >= 10, f"the last batch is {right[-1]}: let five more files arrive and run the stream")
    _ask(right[0] > 0, "nothing was removed: set minBatchesToRetain before the stream runs")
    mistakes = [
        (right[1:], "Spark keeps three, and then begins one more"),
        ([*range(right[-1] + 1)], "these are all batches, and Spark has removed some"),
    ]
    return Truth(right, mistakes)


@_exercise("07.2", "two numbers of rows, such as (5, 6)")
def _twice(*stories: Any) -> Truth:
    wanted = [("overwrite", {name: "true"}) for name in ("ignoreChanges", "skipChangeCommits")]
    played = [(story.strategy, dict(story.options)) for story in stories]
    both = "play overwrite first with ignoreChanges, then with skipChangeCommits; these are {} and {}"
    _ask(
        played == wanted, both.format(*(f"{way} with {', '.join(given) or 'none'}" for way, given in played))
    )
    right = [story.rows_doubled for story in stories]
    rows = [len(stories[0].ids_written), 0]
    mistakes = [(rows, "these are all rows, and the last append came after the overwrite"), _turned(right)]
    return Truth(right, [*mistakes, ([right[0]] * 2, "one of the two options passes over the whole commit")])


@_exercise("07.3", "a number of commits")
def _numbered(log: Any) -> Truth:
    versions = log.commits()["version"].to_pylist()
    actions = [row for version in versions for row in log.actions(version).to_pylist()]
    found = [json.loads(row["fields"])["txn"]["version"] for row in actions if row["action"] == "txn"]
    _ask(3 not in found, "batch 3 was written too: give all of them the same txnAppId, and write 5 first")
    _ask(found == [5, 6], f"the log has the batches {found}: write 5, 3 and 6, with txnAppId and txnVersion")
    late = "Delta writes no batch whose number isn't larger than the last one"
    return Truth(len(versions), [(3, late), (1, "a number may be left out")])


@_exercise("08.1", "the number of a batch")
def _first_removed(policy: Any) -> Truth:
    mistakes = [
        (2, "then the first compaction is written, and two batches have to follow it"),
        (3, "one batch has followed the compaction by then, and two are kept"),
        (7, "then the first compaction goes, and files went before it"),
    ]
    return Truth(next(n for n in range(99) if policy.first_kept(n, 3)), mistakes)


@_exercise("08.2", "a number of bytes")
def _compaction_bytes(log: Any) -> Truth:
    entry = log.pace.entry_bytes
    mistakes = [
        (float(_MINUTES_A_YEAR * 200), "this is the number of entries"),
        (_MINUTES_A_YEAR * entry, "this is with a file a batch"),
        (24 * 60 * 200 * entry, "this is after a day"),
    ]
    return Truth(_MINUTES_A_YEAR * 200 * entry, mistakes)


@_exercise("08.3", "two numbers of rows, by the log and in the files, such as (8, 9)")
def _forgotten(rows: Any, paths: Iterable[Path]) -> Truth:
    lines = {path.name: len(path.read_text().splitlines()) for path in paths}
    read = {Path(path).name for path in rows.inputFiles()}
    _ask(read <= lines.keys(), "the rows are of other files than those of the output")
    right = [rows.count(), sum(lines.values())]
    _ask(right[0] < right[1], "the log still lists all files: run the stream up to the batch of the plan")
    return Truth(right, [([right[1]] * 2, "a reader that goes by the log gets fewer"), _turned(right)])


@_exercise("09.1", "two numbers of rows, missed and outdated, such as (8, 9)")
def _outdated(table: Any) -> Truth:
    files = check_manifest(table).files

    def rows(state: str) -> int:
        paths = files.filter(pc.equal(files["state"], state))["path"].to_pylist()
        return sum(pq.read_metadata(table.path / path).num_rows for path in paths)

    right = [rows("live, not listed"), rows("listed, not live")]
    _ask(any(right), "the manifest lists what is live: delete a row after it is made")
    whole = "a file is listed as a whole, or not at all"
    return Truth(right, [*(([a, b], whole) for a, b in ((0, 1), (1, 0), (1, 1))), _turned(right)])


@_exercise("09.2", "versions in a list")
def _rest(plan: Any) -> Truth:
    _ask(
        plan.num_batches > 2, "this plan has no third commit: give it batch_size and a smaller max_file_size"
    )
    done = plan.handle.log.segment().version - plan.version
    _ask(done == plan.num_batches, f"the plan has committed {done} of {plan.num_batches} batches")
    first, last = plan.version + 1, plan.version + plan.num_batches
    mistakes = [
        ([first, first + 1], "these are of the first run"),
        ([*range(first, last + 1)], "these are of both runs"),
        ([*range(3, plan.num_batches + 1)], "these are numbers of batches: the table had versions before"),
    ]
    return Truth([*range(first + 2, last + 1)], mistakes)


@_exercise("09.3", 'a type, such as "date"')
def _guessed(plan: Any) -> Truth:
    found = {field.name: field.dataType.simpleString() for field in plan.partition_schema}
    _ask("code" in found, "this folder has no partitions by code")
    _ask(found["code"] != "string", "partition_by gave the type: make the plan without it")
    return Truth(
        found["code"], [("string", "the type is guessed from the values, and those look like another")]
    )


@_exercise("10.1", "a number")
def _interleaved() -> Truth:
    mistakes = [(0b011011, "the bit of x comes first"), (0b101011, "take their bits in turn")]
    return Truth(0b100111, mistakes)


@_exercise("10.2", "a percentage")
def _smallest(plan: Callable[[int], Any], gain: int) -> Truth:
    right = next(n for n in range(1, 101) if 2 * plan(n).gain >= gain)
    mistakes = [
        (50, "half of the bytes buys more than half of the gain"),
        (right / 100, "give it in hundredths"),
        (right - 1, "this buys a little less than half"),
        (right + 1, "a smaller one buys half as well"),
    ]
    return Truth(right, mistakes)


@_exercise("10.3", "two numbers of files, for the customer and for the day, such as (8, 9)")
def _opened(table: Any) -> Truth:
    sorted_by = 'put the airport\'s files of this table in Z-order by zorder_by="customer" first'
    _ask(_zorder_of(table) == ["customer"], sorted_by)
    rows = table.spark.read.format("delta").load(uri(table.path)).where("shop = 'airport'")
    right = [len(rows.where(one).inputFiles()) for one in ("customer = 777", _DAY)]
    whole = "a day has rows of all customers, so in how many files are they?"
    return Truth(right, [([right[0]] * 2, whole), _turned(right)])

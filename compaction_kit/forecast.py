"""Forecast files and bytes: arrivals as in the log, compacted every n days as OPTIMIZE packs."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit import plots
from compaction_kit.cost import predict_cost
from compaction_kit.handle import Handle
from compaction_kit.log.actions import count_records
from compaction_kit.log.paths import one_array
from compaction_kit.plan import Planner, Thresholds
from compaction_kit.plan.packing import Packer
from compaction_kit.plan.thresholds import candidates
from compaction_kit.records import Record
from compaction_kit.text import format_count, format_files, format_range, format_size
from compaction_kit.times import millis
from compaction_kit.vacuum import plan_vacuum

_DAY = 86_400_000
# Whole weeks have the same weekdays again, and a log keeps 30 days by default.
_WEEK, _LONGEST_WINDOW = 7, 28
_EVERY, _FEWEST_FILES = (1, 2, 3, 7, 14, 30, 90, 365), 100
_DAYS = ["schedule", "day", "files_before", "num_files", "live_bytes", "stored_bytes"]
_COSTS = ["files_removed", "bytes_removed", "files_added", "bytes_added"]
_SCHEDULES = ["schedule", "every_days", "num_runs", *_COSTS, "mean_files", "most_files", "most_stored_bytes"]

# Rows of arrays with a column per file: bytes, bytes of its live rows, partition, many deleted rows.
_BYTES, _ROW_BYTES, _PARTITION, _MANY_DELETED = range(4)
# A compaction: from files to files and the numbers of `_COSTS`. Removed files (day, bytes), retention, days.
_Step = Callable[[np.ndarray], tuple[np.ndarray, list[int]]]
_Vacuums = tuple[np.ndarray, float, int]


@dataclass(frozen=True, repr=False)
class Forecast(Record):
    """Files and bytes of the days to come, for several intervals of compaction; see `Table.forecast`.

    A schedule is "never" (nothing is done), "every day", "every 2 days" and so on. Numbers are int64.

    Attributes:
        window_days: The last days in the log, which are repeated.
        num_commits, num_other_commits: Commits of these days that only added files, and commits that replaced
            or removed files, which aren't repeated; both without the log's first.
        arrivals: One row per day of the window and partition: days_ago (0 for the last 24 hours),
            partition.<column>, num_files, size_bytes.
        days: One row per schedule and day, from 0 for today: schedule, day, files_before and num_files (live
            before and after its compaction), live_bytes, stored_bytes (with files that wait for a vacuum).
        schedules: One row per schedule: schedule, every_days (null for "never"), num_runs, files_removed,
            bytes_removed, files_added, bytes_added (by all runs), mean_files and most_files (that a full read
            opens), most_stored_bytes, seconds_from and seconds_to (double; of all runs with their proofs).
        max_files: The bound of files that a full read may open.
        every_days: The longest interval within the bound; None if no compaction is needed, or none suffices.
    """

    window_days: int
    num_commits: int
    num_other_commits: int
    arrivals: pa.Table
    days: pa.Table
    schedules: pa.Table
    max_files: int
    every_days: int | None

    @property
    def finding(self) -> str:
        """The files that a full read opens if nothing is done, and if compacted every `every_days`."""
        most = {row["every_days"]: row["most_files"] for row in self.schedules.to_pylist()}
        now, days = self.days["num_files"][0].as_py(), format_count(self.days["day"][-1].as_py(), "day")
        files = format_count(now, "file")
        idle = f"A full read opens {files} now, {most[None]:,} in {days} if nothing is done"
        if self.every_days is not None:
            return f"{idle}; compacted {_named(self.every_days)}, {most[self.every_days]:,} at most"
        if most[None] > self.max_files:
            return f"{idle}; compacted every day, up to {most[1]:,}, above max_files={self.max_files:,}"
        return f"{idle}, within max_files={self.max_files:,}"

    def explain(self) -> str:
        """Return the finding, the cost of its compactions, and the repeated arrivals, a sentence per line."""
        files, size = (pc.sum(self.arrivals[name]).as_py() or 0 for name in ("num_files", "size_bytes"))
        costs = {row["every_days"]: f"{_cost(row)}.\n" for row in self.schedules.to_pylist()[1:]}
        without = f", without {format_count(self.num_other_commits, 'commit')} that replaced or removed files"
        others = without if self.num_other_commits else ""
        return (
            f"{self.finding}.\n{costs.get(self.every_days, '')}Arrivals are those of the log's last "
            f"{format_count(self.window_days, 'day').removeprefix('1 ')}: {format_files(files, size)} by "
            f"{format_count(self.num_commits, 'commit')}{others}."
        )

    def facts(self) -> dict[str, str]:
        """Return the files that a full read opens in each schedule, and the cost: names and values."""
        return {
            row["schedule"]: f"{most} at most, {row['mean_files']:,} on average; "
            f"{format_size(row['most_stored_bytes'])} stored at most; {_cost(row)}"
            for row in self.schedules.to_pylist()
            for most in [format_count(row["most_files"], "file")]
        }

    def plot(self) -> "plots.Chart":
        """Draw the files that a full read opens, a line per schedule, the bound, and the bytes stored."""
        return plots.forecast(self.finding, self.days, _named(self.every_days), self.max_files)

    def parts(self) -> tuple[object, ...]:
        """Return the sentences, the schedules, and the figure."""
        return self.explain(), self.facts(), self.plot()


def _named(every: int | None) -> str:
    return "never" if every is None else "every day" if every == 1 else f"every {every:,} days"


def _cost(row: dict[str, Any]) -> str:
    seconds, runs = format_range(row["seconds_from"], row["seconds_to"]), format_count(row["num_runs"], "run")
    files = format_files(row["files_removed"], row["bytes_removed"])
    return f"{files} rewritten in {runs}, about {seconds}" if row["num_runs"] else "nothing rewritten"


def forecast(
    handle: Handle, planner: Planner, limits: Thresholds, days: int, max_files: int | None, vacuum_days: int
) -> Forecast:
    """Simulate schedules; see `Table.forecast`."""
    vacuum, files, parts = plan_vacuum(handle, at="9999-01-01"), planner.files, planner.files.partitions
    now, keys = millis(handle.instant(None)), ["days_ago", *parts.column_names]
    window, arrived, counts = _arrivals(handle, planner, now)
    columns = dict(zip(parts.column_names, parts.columns, strict=True))
    live = pa.table(columns | {"size_bytes": files.sizes, "weight": planner.model.weights})
    batches = [live, *(_on_day(arrived, day, window).select(live.column_names) for day in range(1, days + 1))]
    ends, whole = np.cumsum([*map(len, batches)]), pa.concat_tables(batches)
    each = [whole["size_bytes"], whole["weight"], planner.group(whole.select(keys[1:])), np.zeros(ends[-1])]
    today, *to_come = np.split(np.array(each, np.int64), ends[:-1], axis=1)
    today[_MANY_DELETED] = candidates(files, limits)[1]
    times = (vacuum.files[name].cast(pa.int64()) for name in ("removed_at", "modification_time"))
    dead = np.array([(pc.max_element_wise(*times).to_numpy() - now) / _DAY, vacuum.files["size_bytes"]])
    vacuums = dead, vacuum.retention / timedelta(days=1), vacuum_days
    compact = partial(_compact, limits, planner.model.overhead)
    run = partial(_simulate, compact, today, to_come, vacuums)
    runs = {every: run(every) for every in (None, *(one for one in _EVERY if one <= days))}
    num_compacted, least = compact(today)[0].shape[1], None
    bound = max_files or max(2 * num_compacted, _FEWEST_FILES)
    if runs[None][1]["most_files"] > bound:
        # Files that arrive before the second compaction are added to those that the first one leaves.
        ahead = accumulate((files.shape[1] for files in to_come), initial=num_compacted)
        often = range(sum(count <= bound for count in ahead) - 1, 0, -1)
        least = next((every for every in often if run(every)[1]["most_files"] <= bound), None)
        runs[least] = run(least)
    rows, schedules = zip(*(runs[every] for every in sorted(runs, key=lambda every: every or 0)), strict=True)
    predict = partial(predict_cost, remote=not handle.store.is_local)
    for row in schedules:
        cost = predict(*(row[name] // max(row["num_runs"], 1) for name in _COSTS))
        row["seconds_from"], row["seconds_to"] = (row["num_runs"] * seconds for seconds in cost.total())
    by_day = arrived.group_by(keys).aggregate([("size_bytes", "count"), ("size_bytes", "sum")])
    by_day = by_day.rename_columns([*keys, "num_files", "size_bytes"]).sort_by([("days_ago", "descending")])
    tables = by_day, pa.Table.from_pylist([*chain(*rows)]), pa.Table.from_pylist(schedules)
    return Forecast(window, counts[True], counts[False], *tables, bound, least)


def _arrivals(handle: Handle, planner: Planner, now: int) -> tuple[int, pa.Table, Counter[bool]]:
    """Return the window's days and files, and how many commits only added files (True) or not (False).

    Columns: days_ago, partition.<column>, size_bytes, stats, weight (bytes of the rows).
    """
    metadata, model, commits = planner.files.snapshot.metadata, planner.model, handle.log.commits()
    ages = np.maximum(now - commits["timestamp"].cast(pa.int64()).to_numpy(), 0) // _DAY
    # Whole days only. The log's first commit, which may have made the table, is no arrival of a day.
    window = int(np.clip(ages.max(initial=0), 1, _LONGEST_WINDOW))
    window -= window % _WEEK if window > _WEEK else 0
    days_ago = dict(zip(commits["version"].to_pylist(), ages.tolist(), strict=True))
    recent = {version for version, age in days_ago.items() if age < window} - {min(days_ago, default=0)}
    physical = {f"partition.{name}": metadata.physical_names[name] for name in metadata.partition_columns}
    rows, counts = list[dict[str, Any]](), Counter[bool]()
    for version, actions in handle.log.raw_commits(min(recent, default=0)):
        adds = {one["add"]["path"]: one["add"] for one in actions if "add" in one}
        removes = {one["remove"]["path"]: one["remove"] for one in actions if "remove" in one}
        if version in recent and any(one["dataChange"] for one in (*adds.values(), *removes.values())):
            # A path that is removed and added got another deletion vector: it is neither new nor gone.
            new = [adds[path] for path in adds if path not in removes and removes.keys() <= adds.keys()]
            counts[bool(new)] += 1
            for add in new:
                values = add.get("partitionValues") or {}
                row = {name: values.get(key) for name, key in physical.items()}
                row |= {"days_ago": days_ago[version], "size_bytes": add["size"], "stats": add.get("stats")}
                rows.append(row)
    kinds = {"days_ago": pa.int64(), "size_bytes": pa.int64(), "stats": pa.string()}
    arrived = pa.Table.from_pylist(rows, pa.schema(kinds | dict.fromkeys(physical, pa.string())))
    records = count_records(one_array(arrived["stats"])).cast(pa.float64()).to_numpy(zero_copy_only=False)
    known, sizes = planner.rows > 0, arrived["size_bytes"].to_numpy()
    weights = records * (model.weights[known].sum() / planner.rows[known].sum() if known.any() else np.nan)
    weights = np.where(np.isnan(weights), np.maximum(sizes - model.overhead, 0), weights)
    weights = np.minimum(weights, sizes).astype(np.int64)
    return window, arrived.append_column("weight", pa.array(weights)), counts


def _on_day(arrived: pa.Table, day: int, window: int) -> pa.Table:
    """Return the files of a future day: the files of a day in the window, in partitions of a later date."""
    shift = -(-day // window) * window
    files = arrived.filter(pc.equal(arrived["days_ago"], shift - day))
    for name in [name for name in files.column_names if name.startswith("partition.")]:
        values = files[name]
        # Dates without an end, such as 9999-12-31, stay unchanged.
        texts = pc.if_else(pc.starts_with(values, "9999"), None, pc.utf8_slice_codeunits(values, 0, 10))
        days = pc.strptime(texts, "%Y-%m-%d", "s", error_is_null=True)
        later = pc.strftime(pc.add(days, timedelta(days=shift)), "%Y-%m-%d")
        later = pc.binary_join_element_wise(later, pc.utf8_slice_codeunits(values, 10, None), "")
        files = files.drop_columns(name).append_column(name, pc.coalesce(later, values))
    return files


def _compact(limits: Thresholds, overhead: int, files: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Return the files after a compaction, and the numbers of `_COSTS`."""
    sizes, weights, groups, many_deleted = files
    packer = Packer(np.lexsort((sizes, groups)), sizes, groups)
    packing = packer.pack((sizes < limits.min_file_size) | (many_deleted > 0), limits.max_file_size)
    positions, bin_ids = packing.members
    removed, rows = (np.bincount(bin_ids, one[positions], packing.num_bins) for one in (sizes, weights))
    added, of_bin = np.minimum(rows + overhead, removed), groups[packing.order[packing.starts]]
    new = np.array([added, np.minimum(rows, added), of_bin, np.zeros(packing.num_bins)], np.int64)
    costs = [len(positions), int(removed.sum()), packing.num_bins, int(new[_BYTES].sum())]
    return np.hstack([np.delete(files, positions, axis=1), new]), costs


def _simulate(
    compact: _Step, files: np.ndarray, to_come: list[np.ndarray], vacuums: _Vacuums, every: int | None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows of `Forecast.days` and the row of `Forecast.schedules` of one schedule."""
    rows, runs, most_stored, (dead, retention, vacuum_days) = [], [[0] * len(_COSTS)], 0, vacuums
    for day, arrived in enumerate([files[:, :0], *to_come]):
        files = np.hstack([files, arrived])
        before, works = files.shape[1], every is not None and day < len(to_come)
        if works and day % (every or 1) == 0:
            files, costs = compact(files)
            runs += [costs] if costs[0] else []
            dead = np.hstack([dead, [[day], [costs[1]]]])
        live = int(files[_BYTES].sum())
        most_stored = max(most_stored, live + int(dead[1].sum()))
        if works and day % vacuum_days == 0:
            dead = dead[:, day - dead[0] < retention]
        row = _named(every), day, before, files.shape[1], live, live + int(dead[1].sum())
        rows.append(dict(zip(_DAYS, row, strict=True)))
    before, after = (np.array([row[name] for row in rows]) for name in ("files_before", "num_files"))
    # A day's files are assumed to arrive evenly over the day.
    opened = round((after[:-1] + before[1:]).mean() / 2), int(before[1:].max())
    row = _named(every), every, len(runs) - 1, *map(sum, zip(*runs, strict=True)), *opened, most_stored
    return rows, dict(zip(_SCHEDULES, row, strict=True))

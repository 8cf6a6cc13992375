"""What is right in the lessons' exercises: computed from the tables, plans and stories that students make."""

from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc

from compaction_kit.interop.check import check_manifest

_DAY = "time BETWEEN '2026-03-10 00:00:00' AND '2026-03-10 23:59:59'"
_RETENTIONS = {"delta.deletedFileRetentionDuration", "delta.logRetentionDuration"}

# What kind of answer is expected, and what computes it. A float may be missed by some per cent.
TRUTHS: dict[str, tuple[str, Callable[..., Any]]] = {
    "01.1": (
        "two numbers of files on average, at version 365 and at 366, such as (10.5, 9.2)",
        lambda table: [table.files(version=version).overlap("time_hour").mean for version in (365, 366)],
    ),
    "01.2": (
        "a factor, bytes before by bytes after, such as 4.2",
        lambda table: table.files(version=table.version - 1).size_bytes / table.files().size_bytes,
    ),
    "01.3": ("two numbers of tasks", lambda *versions: [rows.rdd.getNumPartitions() for rows in versions]),
    "02.1": (
        "names of files in a list",
        lambda table: {row["name"] for row in table.log.listing().to_pylist() if row["needed"]},
    ),
    "02.2": (
        'an action, such as "metaData"',
        lambda commit, state: (set(commit["action"].to_pylist()) - set(state["action"].to_pylist())).pop(),
    ),
    "02.3": ("a set of paths", lambda files: set(files.to_arrow()["path"].to_pylist())),
    "03.1": ("a number of bins", lambda it: it.num_bins + it.steps["outcome"].to_pylist().count("alone")),
    "03.2": ("a number of bins", lambda table, size: table.plan_compaction(max_file_size=size).num_bins),
    "03.3": (
        "three numbers of files: now, after OPTIMIZE, by event_time, such as (9.5, 8.5, 7.5)",
        lambda plan: [plan.compare("event_time").layouts["range_files"][row].as_py() for row in (0, 1, 3)],
    ),
    "04.1": (
        "a number of rows",
        lambda commits: pc.sum(commits.filter(commits["data_change"])["records_added"]).as_py(),
    ),
    "04.2": ("a number of rows", lambda files: pc.sum(files.to_arrow()["num_records"]).as_py()),
    "04.3": ("a number of files", lambda files: files.overlap("value").max),
    "05.1": ("an exception of the table above", lambda story: story.refusal.exception),
    "05.2": ("one of the reasons", lambda reasons: min(reasons, key=reasons.count)),
    "05.3": ('an operation, such as "WRITE"', lambda log: log.commits()["operation"][-1].as_py()),
    "06.1": ("a share from 0 to 1", lambda gone, kept: gone.size_bytes / (gone.size_bytes + kept.size_bytes)),
    "06.2": ("a number of rows", lambda files: pc.sum(files.to_arrow()["num_records"]).as_py()),
    "06.3": (
        'a property, such as "delta.appendOnly"',
        lambda log: max(set(log.snapshot().metadata.configuration) & _RETENTIONS, default=""),
    ),
    "07.1": ("numbers in a list", lambda folder: sorted(int(file.name) for file in folder.glob("[0-9]*"))),
    "07.2": ("two numbers of rows, such as (5, 6)", lambda *stories: [one.rows_doubled for one in stories]),
    "07.3": ("a number of commits", lambda log: log.commits().num_rows),
    "08.1": ("the number of a batch", lambda log: next(n for n in range(99) if log.first_kept(n, 3))),
    "08.2": ("a number of bytes", lambda memory: float(memory.bytes_for(365 * 24 * 60 * 200))),
    "08.3": (
        "two numbers of rows, by the log and in the files, such as (8, 9)",
        lambda rows, paths: [rows.count(), sum(len(path.read_text().splitlines()) for path in paths)],
    ),
    "09.1": (
        "two numbers of rows, missed and outdated, such as (8, 9)",
        lambda table: [getattr(check_manifest(table).damage, name) for name in ("missed", "outdated")],
    ),
    "09.2": (
        "versions in a list",
        lambda plan: [*range(plan.version + 3, plan.version + plan.num_batches + 1)],
    ),
    "09.3": ('a type, such as "date"', lambda plan: plan.partition_schema[0].dataType.simpleString()),
    "10.1": ("a number", lambda: sum((5 >> k & 1) << 2 * k + 1 | (3 >> k & 1) << 2 * k for k in range(3))),
    "10.2": ("a percentage", lambda plan, gain: next(n for n in range(1, 101) if 2 * plan(n).gain >= gain)),
    "10.3": (
        "two numbers of files, for the customer and for the day, such as (8, 9)",
        lambda rows: [len(rows.where(one).inputFiles()) for one in ("customer = 777", _DAY)],
    ),
}

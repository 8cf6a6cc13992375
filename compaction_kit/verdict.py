"""Say in a few sentences what a table needs, why it needs nothing, or what a run has done to it."""

from dataclasses import dataclass

import numpy as np

from compaction_kit.execute import CompactionResult
from compaction_kit.files import Files
from compaction_kit.plan.auto import enabled_by
from compaction_kit.plan.clustering import NEW
from compaction_kit.plan.explain import exactness, explain_clustering, why_empty
from compaction_kit.plan.plan import BinPlan
from compaction_kit.plan.predict import count_rows
from compaction_kit.reads import ReadComparison
from compaction_kit.text import (
    Html,
    element,
    format_count,
    format_factor,
    format_files,
    format_list,
    format_seconds,
    format_size,
    joined_lines,
    prose,
    shown,
)

# From this factor on, the sentence gives the factor, not the number of excess files.
_MANY_TIMES = 2
_MANY_PARTITIONS = 100


@dataclass(frozen=True)
class Verdict:
    """The conclusion about a table, in a few sentences.

    Attributes:
        kind: "warning" for at least twice as many files as needed, and for a run that did not do what was
            planned; "text" for fewer; "good" if there is nothing to do, or a run is done; "error" if there is
            no plan.
        sentences: The conclusion, then the details.
    """

    kind: str
    sentences: tuple[str, ...]

    @classmethod
    def of(
        cls,
        files: Files | None,
        plan: BinPlan | None,
        error: str = "",
        result: CompactionResult | None = None,
        reads: ReadComparison | None = None,
    ) -> "Verdict | None":
        """Judge a table by its files and their plan; return None without a plan, an error and a result.

        `files` are the live files, None if they can't be read; `error` says in one sentence why there is no
        plan. `result` is the result of the last run; `reads` compares a query before and after this run.

        Examples:
            >>> from compaction_kit.verdict import Verdict
            >>> plan = ck.open_table("data/flights").plan_compaction()
            >>> print(Verdict.of(plan.source, plan))
            1,095 files where 3 would do: a full scan opens 365 times as many files as it needs to.
            Compaction rewrites 1,095 files (19.1 MiB in total) into 3 files, about ... MiB in all, in ...
            The plan is exact...
        """
        past = _outcome(result, reads)
        if error:
            is_empty = files is not None and files.snapshot.live.num_rows == 0
            kind, now = "good" if is_empty else "error", [error]
        else:
            kind, now = ("text", []) if plan is None else _advice(plan)
        if kind == "error":
            return cls(kind, (*now, *past))
        if past:
            # After a run, the plan's reason for having nothing to do is left out.
            if plan is not None and plan.is_empty:
                now = [f"Nothing more to do{_scope(plan)}.", *now[1:]]
            kind = "warning" if result is not None and not result.as_planned else "good"
        return cls(kind, (*past, *now)) if past or now else None

    def __str__(self) -> str:
        return joined_lines(self.sentences)

    def _repr_html_(self) -> Html:
        first, *others = self.sentences
        details = [element("p", prose(" ".join(others)))] if others else []
        return shown(element("p", element("b", prose(first))), *details)


def _advice(plan: BinPlan) -> tuple[str, list[str]]:
    now, after = plan.source.num_files, plan.num_files_after
    kind = "warning" if now >= _MANY_TIMES * after else "text"
    if plan.is_empty:
        kind, sentences = "good", [f"Nothing to do{_scope(plan)}, because {why_empty(plan)}."]
    elif plan.clustered_by:
        new = sum(row["num_files"] for row in plan.cubes.to_pylist() if row["state"] == NEW)
        columns, are = ", ".join(plan.clustered_by), "is" if new == 1 else "are"
        first = f"No file is new, and OPTIMIZE would cluster {plan.num_files_removed:,} by {columns} again."
        if new:
            first = f"{format_count(new, 'file')} of {now:,} {are} not clustered by {columns} yet."
        sentences = [first, *explain_clustering(plan)[:-2]]
    else:
        sentences = _needed(plan, now, after)
    return kind, sentences + _besides(plan)


def _scope(plan: BinPlan) -> str:
    return f" where {plan.where}" if plan.where else ""


def _needed(plan: BinPlan, now: int, after: int) -> list[str]:
    scope, which = (f", where {plan.where}", " of them") if plan.where else ("", "")
    times = f"{format_count(now - after, 'file')} more than"
    if now >= _MANY_TIMES * after:
        times = f"{format_factor(now / after)} times as many files as"
    first = f"{now:,} files where {after:,} would do{scope}: a full scan{which} opens {times} it needs to."
    if after >= now:
        first = f"{format_count(now, 'file')}{scope}, and compaction would leave {after:,}."
    uncertain = " and ".join(exactness(plan).uncertain)
    in_all = "" if plan.num_files_added == 1 else " in all"
    about = f"about {format_size(plan.bytes_added)}{in_all}"
    return [
        first,
        f"Compaction rewrites {format_files(plan.num_files_removed, plan.bytes_removed)} into "
        f"{format_count(plan.num_files_added, 'file')}, {about}, in "
        f"{format_count(plan.num_partitions, 'partition')}.",
        f"The plan is exact{', except for ' if uncertain else ''}{uncertain}.",
    ]


def _besides(plan: BinPlan) -> list[str]:
    """Say what OPTIMIZE leaves, what else compacts the table, and why files stay small."""
    sentences = []
    # A purge leaves files without live rows too, so their deleted rows don't count.
    deleted = np.where(plan.is_removed | (plan.planner.rows == 0), 0, count_rows(plan.source)[1])
    if deleted.any():
        rows, left = int(deleted.sum()), int((deleted > 0).sum())
        stay, these = "stays" if rows == 1 else "stay", "this file" if left == 1 else "these files"
        sentences.append(
            f"{format_count(rows, 'deleted row')} in {format_count(left, 'file')} {stay} on disk: OPTIMIZE "
            f"doesn't rewrite {these}, but table.plan_purge() in Python does."
        )
    if setting := enabled_by(lambda _: None, plan.source.snapshot.metadata.configuration):
        sentences.append(
            f"Auto compaction is on ({setting}): table.auto_compaction() in Python says when it fires."
        )
    # Partitions are numbered from 0.
    num_partitions, size = int(plan.planner.groups.max(initial=-1)) + 1, plan.sizes_after
    small = plan.source.small_file_size()
    # At most one small file per partition is left.
    is_split = num_partitions >= _MANY_PARTITIONS and np.count_nonzero(size < small) <= num_partitions
    if is_split and size.mean() < small:
        have, about = ("have", "") if plan.is_empty else ("would still have", "about ")
        sentences.append(
            f"With {num_partitions:,} partitions, files {have} {about}{format_size(size.mean())} on average: "
            "only fewer partitions would make them larger."
        )
    return sentences


def _outcome(result: CompactionResult | None, reads: ReadComparison | None) -> list[str]:
    if result is None or not result.versions:
        return []
    which = "version" if len(result.versions) == 1 else "versions"
    sentences = [
        f"{format_count(result.num_files_removed, 'file')} became {result.num_files_added:,}: "
        f"{format_size(result.bytes_removed)} → {format_size(result.bytes_added)} in "
        f"{format_seconds(result.seconds)}, as {which} {format_list(result.versions)}, "
        f"by {result.strategies}."
    ]
    if result.fingerprint is None:
        sentences.append("The content was not compared.")
    else:
        readers = " and ".join(result.fingerprint.readers)
        rows = format_count(result.fingerprint.num_rows, "row")
        sentences.append(f"The content is the same: {rows} compared by {readers}.")
    if result.conflicts:
        left = "all was done as planned" if result.as_planned else "files that they changed were left out"
        sentences.append(f"{format_count(len(result.conflicts), 'conflict')} with other writers, and {left}.")
    elif not result.as_planned:
        sentences.append("What was done isn't exactly what was planned.")
    if reads is not None:
        finding = f"{reads.finding[0].lower()}{reads.finding[1:]}"
        sentences.append(f"Your query: {finding}.")
    return sentences

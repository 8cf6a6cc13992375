"""Lesson 09's lab: what a reader of a manifest gets that was made in the midst of a compaction."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.plan.plan import BinPlan
from compaction_kit.text import format_count
from course import figures
from course.lab import Choice, Finding, Lab, Steps

_NEVER = np.iinfo(np.int64).max
_STAYS, _APPENDED = "not compacted", "appended"
_APPENDS = (0, 100, 1_000, 5_000)
# What happens after the compaction, as arguments of `read_manifest` that are true.
_THEN: dict[str, tuple[str, ...]] = {
    "nothing more": (),
    "somebody adds the live files to the list": ("by_hand",),
    "VACUUM deletes the compacted files": ("vacuumed",),
    "they are added, then VACUUM deletes": ("by_hand", "vacuumed"),
}


@dataclass(frozen=True)
class Reading:
    """What a reader of a manifest gets, once the compaction is done.

    Attributes:
        generated: The number of batches that were committed before GENERATE.
        num_batches: The number of all batches.
        groups: One row per group of files: name (string: "not compacted", "batch 1" …, "appended"), num_rows
            (int64, what the table has), old_rows and new_rows (int64, read from files before and after
            their compaction).
        num_gone: The listed files that are no longer on disk: a reader fails, unless it passes over them.
    """

    generated: int
    num_batches: int
    groups: pa.Table
    num_gone: int

    @property
    def num_rows(self) -> int:
        """The rows that are read."""
        return sum(pc.sum(self.groups[name]).as_py() for name in ("old_rows", "new_rows"))

    @property
    def twice(self) -> int:
        """The rows that are read from files before and after their compaction."""
        return pc.sum(pc.min_element_wise(self.groups["old_rows"], self.groups["new_rows"])).as_py() or 0

    @property
    def missed(self) -> int:
        """The rows that are not read."""
        read = pc.max_element_wise(self.groups["old_rows"], self.groups["new_rows"])
        return pc.sum(pc.subtract(self.groups["num_rows"], read)).as_py() or 0

    def explain(self) -> str:
        """Say what the reader gets, and from which files."""
        total, old = (pc.sum(self.groups[name]).as_py() for name in ("num_rows", "old_rows"))
        lines = [f"The table has {total:,} rows, and the reader gets {self.num_rows:,}."]
        if old:
            lines.append(f"{old:,} of them are from files that were compacted, which VACUUM will delete.")
        if self.num_gone:
            lines.append("A reader fails at a missing file; these are the rows of one that passes over it.")
        return " ".join(lines)

    def plot(self) -> Figure:
        """Draw the rows that are read of each batch's files."""
        twice, missed, gone = self.twice, self.missed, self.num_gone
        what = [f"{format_count(gone, 'file')} of the list gone"] * bool(gone)
        what += [f"{twice:,} rows read twice"] * bool(twice) + [f"{missed:,} rows missed"] * bool(missed)
        after = f"GENERATE after {self.generated} of {self.num_batches} batches"
        left = self.generated + (_STAYS in self.groups["name"].to_pylist())
        return figures.manifest_rows(
            self.groups, left, f"{after}: {', '.join(what) or 'each row is read once'}"
        )


def read_manifest(
    plan: BinPlan, generated: int, appended: int = 0, by_hand: bool = False, vacuumed: bool = False
) -> Reading:
    """Tell what a reader gets of a manifest that was generated after some of a plan's batches.

    GENERATE lists the files that are live at that moment. Then the other batches are committed, and the
    rest happens in the order of the arguments.

    Args:
        plan: The compaction, batch by batch.
        generated: The number of batches that were committed before GENERATE.
        appended: The rows of a file that is written after the compaction; 0 for none.
        by_hand: Whether somebody adds the live files that are not listed.
        vacuumed: Whether VACUUM deletes all files that are not live.

    Raises:
        InvalidArgumentError: There are not so many batches; or a file has a deletion vector, with which no
            manifest can be made, or no row count in the log.
    """
    bins, source = plan.bins, plan.source.to_arrow()
    if source["num_records"].null_count or pc.sum(source["deletion_vector_cardinality"]).as_py():
        raise InvalidArgumentError(
            f"A file of version {plan.version} has a deletion vector, or no row count in the log: give the "
            "plan of a table without such files."
        )
    batch_ids, commits = np.unique(bins["batch_id"].to_numpy(), return_inverse=True)
    last = len(batch_ids)
    if not 0 <= generated <= last:
        raise InvalidArgumentError(f"generated={generated} is not a number of batches: give 0 to {last}.")
    commits, rows = commits + 1, bins["num_records"].to_numpy()
    stays = pc.sum(source["num_records"]).as_py() - rows.sum()
    # The files of each bin, its output, the files that stay, and the one that is appended.
    added = np.r_[np.zeros_like(commits), commits, 0, last + 1]
    removed = np.r_[commits, np.full(len(commits) + 2, _NEVER)]
    num_rows = np.r_[rows, rows, stays, appended]
    num_files = np.r_[bins["num_files"].to_numpy(), np.ones(len(commits) + 2, np.int64)]
    live = removed == _NEVER
    listed = (added <= generated) & (removed > generated) | (by_hand & live)
    read = listed & (live | (not vacuumed))
    groups = np.where(live, added, removed)

    def rows_of(files: np.ndarray) -> np.ndarray:
        return np.bincount(groups, num_rows * files, minlength=last + 2).astype(np.int64)

    counted = pa.table(
        {
            "name": [_STAYS, *(f"batch {number}" for number in range(1, last + 1)), _APPENDED],
            "num_rows": rows_of(live),
            "old_rows": rows_of(read & ~live),
            "new_rows": rows_of(read & live),
        }
    )
    return Reading(
        generated,
        last,
        counted.filter(pc.greater(counted["num_rows"], 0)),
        int(num_files[listed & ~read].sum()),
    )


def manifest(plan: BinPlan, generated: int = 1, appended: int = 100) -> Lab:
    """Show what a reader gets of a manifest that was generated in the midst of a compaction.

    Args:
        plan: A compaction in some batches; it is not run.
        generated: The number of batches that are committed before GENERATE.
        appended: The rows of a file that is written after the compaction: 0, 100, 1,000 or 5,000.

    Raises:
        InvalidArgumentError: A control has no such value.
    """
    num_batches = len(plan.batches)

    def find(generated: int, appended: int, then: tuple[str, ...]) -> Finding:
        reading = read_manifest(plan, generated, appended, **dict.fromkeys(then, True))
        given = "".join(f", {name}=True" for name in then)
        code = (
            "from course.labs.manifest import read_manifest\n\n"
            f"reading = read_manifest(plan, generated={generated}, appended={appended}{given})\n"
            "print(reading.explain())\n"
            "reading.plot()"
        )
        return Finding(reading.explain(), reading.plot(), code)

    return Lab(
        find,
        generated=Steps(
            "GENERATE after batch", range(num_batches + 1), generated, lambda k: f"{k} of {num_batches}"
        ),
        appended=Steps("Rows appended later", _APPENDS, appended, "{:,}".format),
        then=Choice("Then", _THEN, ()),
    )

"""Lesson 09's lab: what a reader gets of a manifest that was generated during a compaction."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure

from compaction_kit.plan.plan import BinPlan
from compaction_kit.text import format_count
from course import figures
from course.lab import Choice, Finding, Lab, Steps

_STAYS = "not compacted"
# What happens after the compaction, as arguments of `read_manifest` that are true.
_THEN: dict[str, tuple[str, ...]] = {
    "nothing more": (),
    "somebody adds the live files to the list": ("by_hand",),
    "VACUUM deletes the compacted files": ("vacuumed",),
    "they are added, then VACUUM deletes": ("by_hand", "vacuumed"),
}


@dataclass(frozen=True)
class Reading:
    """What a reader of a manifest gets after the compaction.

    Attributes:
        generated: The number of batches that were committed before GENERATE.
        num_batches: The number of all batches.
        groups: One row per group of files: name (string: "not compacted", "batch 1" …, "appended"), num_rows
            (int64, what the table has), old_rows and new_rows (int64, read from files before and after
            their compaction).
        num_gone: The listed files that are no longer on disk: a reader fails, unless it ignores them.
    """

    generated: int
    num_batches: int
    groups: pa.Table
    num_gone: int

    @property
    def num_rows(self) -> int:
        """The rows that are read."""
        return sum(row["old_rows"] + row["new_rows"] for row in self.groups.to_pylist())

    @property
    def twice(self) -> int:
        """The rows that are read from files before and after their compaction."""
        return sum(min(row["old_rows"], row["new_rows"]) for row in self.groups.to_pylist())

    @property
    def missed(self) -> int:
        """The rows that are not read."""
        rows = self.groups.to_pylist()
        return sum(row["num_rows"] - max(row["old_rows"], row["new_rows"]) for row in rows)

    def explain(self) -> str:
        """Say what the reader gets, and from which files."""
        total, old = (pc.sum(self.groups[name]).as_py() for name in ("num_rows", "old_rows"))
        lines = [f"The table has {total:,} rows, and the reader gets {self.num_rows:,}."]
        if old:
            lines.append(f"{old:,} of them are from files that were compacted, which VACUUM will delete.")
        if self.num_gone:
            lines.append("A reader fails at a missing file; one that ignores missing files gets these rows.")
        return " ".join(lines)

    def plot(self) -> Figure:
        """Draw the rows that are read of each batch's files."""
        found = {
            f"{format_count(self.num_gone, 'file')} of the list gone": self.num_gone,
            f"{self.twice:,} rows read twice": self.twice,
            f"{self.missed:,} rows missed": self.missed,
        }
        what = ", ".join(text for text, count in found.items() if count) or "each row is read once"
        title = f"GENERATE after {self.generated} of {self.num_batches} batches: {what}"
        left = self.generated + (_STAYS in self.groups["name"].to_pylist())
        return figures.manifest_rows(self.groups, left, title)


def read_manifest(
    plan: BinPlan, generated: int, appended: int = 0, by_hand: bool = False, vacuumed: bool = False
) -> Reading:
    """Compute what a reader gets of a manifest that was generated after some of a plan's batches.

    GENERATE lists the files that are live at that moment. Then the other batches are committed, and the
    rest happens in the order of the arguments.

    Args:
        plan: A compaction in batches, of a table without deletion vectors.
        generated: The number of batches that were committed before GENERATE.
        appended: The rows of a file that is written after the compaction; 0 for none.
        by_hand: Whether somebody adds the live files that are not listed.
        vacuumed: Whether VACUUM deletes all files that are not live.
    """
    sums = [("num_records", "sum"), ("num_files", "sum")]
    batches = plan.bins.group_by("batch_id").aggregate(sums).sort_by("batch_id").to_pylist()
    num_rows = pc.sum(plan.source.to_arrow()["num_records"]).as_py()
    stays = num_rows - sum(batch["num_records_sum"] for batch in batches)
    groups, num_gone = [(_STAYS, stays, 0, stays)], 0
    for number, batch in enumerate(batches, 1):
        rows, is_old = batch["num_records_sum"], number > generated
        old_rows, new_rows = rows * (is_old and not vacuumed), rows * (not is_old or by_hand)
        groups.append((f"batch {number}", rows, old_rows, new_rows))
        num_gone += batch["num_files_sum"] * (is_old and vacuumed)
    groups.append(("appended", appended, 0, appended * by_hand))
    columns = zip(*(group for group in groups if group[1]), strict=True)
    names = ("name", "num_rows", "old_rows", "new_rows")
    table = pa.table(dict(zip(names, map(pa.array, columns), strict=True)))
    return Reading(generated, len(batches), table, num_gone)


def manifest(plan: BinPlan, generated: int = 1, appended: int = 100) -> Lab:
    """Show what a reader gets of a manifest that was generated during a compaction.

    Args:
        plan: A compaction in some batches; it is not run.
        generated: The number of batches that are committed before GENERATE.
        appended: The rows of a file that is written after the compaction: 0, 100, 1,000 or 5,000.
    """
    last = len(plan.batches)

    def find(generated: int, appended: int, then: tuple[str, ...]) -> Finding:
        reading = read_manifest(plan, generated, appended, **dict.fromkeys(then, True))
        given = "".join(f", {name}=True" for name in then)
        code = f"""\
from course.labs.manifest import read_manifest

reading = read_manifest(plan, generated={generated}, appended={appended}{given})
print(reading.explain())
reading.plot()"""
        return Finding(reading.explain(), reading.plot(), code)

    return Lab(
        find,
        generated=Steps("GENERATE after batch", range(last + 1), generated, lambda k: f"{k} of {last}"),
        appended=Steps("Rows appended later", (0, 100, 1_000, 5_000), appended, "{:,}".format),
        then=Choice("Then", _THEN, ()),
    )

"""Lesson 09's lab: what a reader gets of a manifest that was generated during a compaction."""

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.plan.plan import BinPlan
from course import figures
from course.lab import Choice, Finding, Lab, Steps

# What happens after the compaction, as arguments of `read_manifest` that are true.
_THEN: dict[str, tuple[str, ...]] = {
    "nothing more": (),
    "somebody adds the live files to the list": ("by_hand",),
    "VACUUM deletes the compacted files": ("vacuumed",),
    "they are added, then VACUUM deletes": ("by_hand", "vacuumed"),
}
_COUNTS = ("num_rows", "old_rows", "new_rows", "num_gone")
_GROUPS = pa.schema({"name": pa.string()} | dict.fromkeys(_COUNTS, pa.int64()))


def read_manifest(
    plan: BinPlan, generated: int, appended: int = 0, by_hand: bool = False, vacuumed: bool = False
) -> pa.Table:
    """Compute what a reader gets of a manifest that was generated after some of a plan's batches.

    GENERATE lists the files that are live at that moment. Then the other batches are committed, and the
    rest happens in the order of the arguments.

    Args:
        plan: A compaction in batches, of a table without deletion vectors.
        generated: The number of batches that were committed before GENERATE.
        appended: The rows of a file that is written after the compaction; 0 for none.
        by_hand: Whether somebody adds the live files that are not listed.
        vacuumed: Whether VACUUM deletes all files that are not live.

    Returns:
        One row per group of files: name (string: "not compacted", "batch 1" …, "appended"), num_rows (int64,
        what the table has), old_rows and new_rows (int64, read from files before and after their
        compaction), num_gone (int64, the listed files that are no longer on disk).
    """
    sums = [("num_records", "sum"), ("num_files", "sum")]
    batches = plan.bins.group_by("batch_id").aggregate(sums).sort_by("batch_id").to_pylist()
    stays = pc.sum(plan.source.to_arrow()["num_records"]).as_py()
    stays -= sum(batch["num_records_sum"] for batch in batches)
    groups = [("not compacted", stays, 0, stays, 0)]
    for number, batch in enumerate(batches, 1):
        rows, is_old = batch["num_records_sum"], number > generated
        is_gone = is_old and vacuumed
        read = rows * (is_old and not is_gone), rows * (not is_old or by_hand)
        groups.append((f"batch {number}", rows, *read, batch["num_files_sum"] * is_gone))
    groups.append(("appended", appended, 0, appended * by_hand, 0))
    found = [dict(zip(_GROUPS.names, group, strict=True)) for group in groups if group[1]]
    return pa.Table.from_pylist(found, _GROUPS)


def explain(groups: pa.Table) -> str:
    """Say what a reader gets, from what `read_manifest` returns, and from which files."""
    total, old, new, num_gone = (pc.sum(groups[name]).as_py() for name in _COUNTS)
    lines = [f"The table has {total:,} rows, and the reader gets {old + new:,}."]
    if old:
        lines.append(f"{old:,} of them are from files that were compacted, which VACUUM will delete.")
    if num_gone:
        lines.append("A reader fails at a missing file; a reader that ignores missing files gets these rows.")
    return " ".join(lines)


def manifest(plan: BinPlan, generated: int = 1, appended: int = 100) -> Lab:
    """Show what a reader gets of a manifest that was generated during a compaction.

    Args:
        plan: A compaction in some batches; it is not run.
        generated: The number of batches that are committed before GENERATE.
        appended: The rows of a file that is written after the compaction: 0, 100, 1,000 or 5,000.
    """
    last = len(plan.batches)

    def find(generated: int, appended: int, then: tuple[str, ...]) -> Finding:
        groups = read_manifest(plan, generated, appended, **dict.fromkeys(then, True))
        given = "".join(f", {name}=True" for name in then)
        code = f"""\
from course import figures
from course.labs.manifest import explain, read_manifest

groups = read_manifest(plan, generated={generated}, appended={appended}{given})
print(explain(groups))
figures.manifest_rows(groups, generated={generated})"""
        return Finding(explain(groups), figures.manifest_rows(groups, generated), code)

    return Lab(
        find,
        generated=Steps("GENERATE after batch", range(last + 1), generated, lambda k: f"{k} of {last}"),
        appended=Steps("Rows appended later", (0, 100, 1_000, 5_000), appended, "{:,}".format),
        then=Choice("Then", _THEN, ()),
    )

"""Lesson 09's lab: the rows that a reader gets from a manifest generated during a compaction."""

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.plan.plan import BinPlan
from course import figures
from course.lab import Choice, Finding, Lab, Steps

# The events after the compaction, with the arguments of `read_manifest` that are True for each.
_THEN: dict[str, tuple[str, ...]] = {
    "nothing more": (),
    "somebody adds the live files to the list": ("by_hand",),
    "VACUUM deletes the replaced files": ("vacuumed",),
    "they are added, then VACUUM deletes": ("by_hand", "vacuumed"),
}
_GROUPS = ("name", "num_rows", "old_rows", "new_rows", "num_gone")


def read_manifest(
    plan: BinPlan, generated: int, appended: int = 0, by_hand: bool = False, vacuumed: bool = False
) -> pa.Table:
    """Compute the rows that a reader gets from a manifest that GENERATE made after some of a plan's batches.

    Then the other batches are committed and a file of `appended` rows is added. With `by_hand`, somebody adds
    the missing live files to the manifest; with `vacuumed`, VACUUM deletes all files that aren't live.

    Returns:
        One row per group of files: name ("not compacted", "batch 1" …, "appended"), num_rows (in the table),
        old_rows and new_rows (read from files before and after their compaction), num_gone (listed files that
        are no longer on disk).
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
    found = zip(*(group for group in groups if group[1]), strict=True)
    return pa.table(dict(zip(_GROUPS, found, strict=True)))


def explain(groups: pa.Table) -> str:
    """Say how many rows a reader gets, and from which files, from the result of `read_manifest`."""
    total, old, new, num_gone = (pc.sum(groups[name]).as_py() for name in _GROUPS[1:])
    lines = [f"The table has {total:,} rows, and the reader gets {old + new:,}."]
    if old:
        lines.append(f"{old:,} of them are from files that were replaced, which VACUUM will delete.")
    if num_gone:
        lines.append("A reader fails at a missing file; a reader that ignores missing files gets these rows.")
    return " ".join(lines)


def manifest(plan: BinPlan) -> Lab:
    """Show the rows that a reader gets from a manifest generated during a compaction, which is not run."""
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
        generated=Steps("GENERATE after batch", range(last + 1), 1, lambda k: f"{k} of {last}"),
        appended=Steps("Rows appended later", (0, 100, 1_000, 5_000), 100, "{:,}".format),
        then=Choice("Then", _THEN, ()),
    )

"""Lesson 06's lab: when a vacuum runs, how long it keeps removed files, and which versions are lost by it."""

from datetime import UTC, datetime, timedelta
from functools import partial

from compaction_kit.lessons.lab import Choice, Finding, Lab, Steps
from compaction_kit.table import Table
from compaction_kit.text import format_count


def vacuum(table: Table, days: int = 8, retention: int = 7) -> Lab:
    """Show which versions a vacuum would cost; nothing is deleted.

    Args:
        table: A table.
        days: In how many days from now the vacuum would run, 0 to 60.
        retention: The days for which it keeps removed files, 1 to 60.

    Raises:
        InvalidArgumentError: A control has no such value.
    """
    # One moment for all, so that what is shown depends on the controls alone.
    now = datetime.now(UTC)

    def find(days: int, retention: int, keep: tuple[int, ...]) -> Finding:
        plan = table.plan_vacuum(f"{retention} days", keep, at=now + timedelta(days))
        kept = f"keep_versions={list(keep)}, " if keep else ""
        code = (
            "from datetime import UTC, datetime, timedelta\n\n"
            f"at = datetime.now(UTC) + timedelta(days={days})\n"
            f'vacuum = table.plan_vacuum(retention="{retention} days", {kept}at=at)\n'
            "print(vacuum.explain())\n"
            "vacuum.plot()"
        )
        return Finding(plan.explain().partition("\n")[0], plan.plot(), code)

    in_days = partial(format_count, noun="day")
    versions = table.versions()["version"].to_pylist()
    return Lab(
        find,
        days=Steps("VACUUM runs in", range(61), days, in_days),
        retention=Steps("Keeps removed files for", range(1, 61), retention, in_days),
        keep=Choice("Version to keep", {"none": ()} | {str(number): (number,) for number in versions}, ()),
    )

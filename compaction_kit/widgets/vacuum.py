"""A vacuum of the open table: its cost, its plan, its run, which wants the table's name typed."""

from datetime import UTC, datetime, timedelta

import ipywidgets as w

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.table import Table
from compaction_kit.vacuum import VacuumPlan
from compaction_kit.widgets import parts
from compaction_kit.widgets.parts import FigureView, JobBar, Part, Slider, Text, live
from compaction_kit.widgets.state import WorkbenchState

_MOST_DAYS = 60


def vacuum_part(state: WorkbenchState) -> Part:
    """Show which versions and files a vacuum would cost; it deletes once the table's name has been typed."""
    planning, running = state.planning_vacuum, state.vacuuming
    retention = parts.field("Retention", "as the table is set", "ck-retention", "300px", "96px")
    keep = parts.field("Keep versions", "such as 3, 7", "ck-keep", "300px", "96px")
    days = Slider(label="In days from now", min=0, max=_MOST_DAYS).add_class("ck-days")
    parts.bind(state, retention=retention, keep=keep, days=days)
    live(days, text=lambda: f"in {state.days} days" if state.days else "now")
    name = parts.field("Type its name", "", "ck-confirm", "300px", "96px")
    live(name, placeholder=lambda: state.password).continuous_update = True
    # A name that was typed is for the plan that it was typed under, and for no other.
    planning.observe(lambda _: setattr(name, "value", ""), "answer")

    def make(table: Table) -> VacuumPlan:
        at = datetime.now(UTC) + timedelta(days=state.days) if state.days else None
        try:
            kept = [int(version) for version in state.keep.replace(",", " ").split()] or None
        except ValueError:
            bad = f'keep_versions="{state.keep}" are not versions: write them as 3, 7.'
            raise InvalidArgumentError(bad) from None
        return table.plan_vacuum(retention=state.retention or None, keep_versions=kept, at=at)

    def delete() -> None:
        state.vacuum(name.value)
        name.value = ""

    def is_armed() -> bool:
        return state.can_vacuum and not running.running and name.value == state.password

    def explained(part: int) -> str:
        if (plan := planning.value) is None:
            looking = "Looking …" if state.table is not None else "No table is open."
            return looking if part and not planning.error else ""
        lines = plan.explain().split("\n")
        first = 1 if plan.versions_lost else 0
        return "\n".join((lines[:first], lines[first:])[part])

    def code() -> str:
        given = [f"retention={state.retention!r}"] if state.retention else []
        given += [f"keep_versions=[{state.keep}]"] if state.keep else []
        given += [f"at=datetime.now(UTC) + timedelta(days={state.days})"] if state.days else []
        return parts.python(
            f"table = ck.open_table({state.name!r})",
            f"vacuum = table.plan_vacuum({', '.join(given)})",
            "print(vacuum.explain())",
            *([] if state.days else ["vacuum.run(progress=True)  # deletes what the plan shows"]),
            imports=["from datetime import UTC, datetime, timedelta"] if state.days else [],
        )

    button = parts.button("Delete these files", "ck-vacuum", delete, style="danger")
    button.disabled = True
    danger = w.HBox([name, live(button, disabled=lambda: not is_armed())]).add_class("ck-danger")
    part = Part(
        parts.row(retention, keep, days),
        Text("error", "vacuum-error", lambda: planning.error),
        Text("warning", "vacuum-cost", lambda: explained(0)),
        Text("text", "vacuum-plan", lambda: explained(1)),
        FigureView("ck-vacuum-figure", lambda: planning.value and planning.value.plot),
        live(danger, lambda: planning.value and not planning.value.is_empty and not state.days),
        parts.other_table(state, running),
        JobBar(running, "ck-vacuuming"),
        parts.outcome(running, "outcome", str),
        on=[state, planning, running],
        title="Vacuum",
        code=code,
        records=lambda: [running.result if running.about == state.name else None, planning.value],
        prepare=lambda: state.plan_vacuum(make),
    )
    part.watch(name, "value")
    return part

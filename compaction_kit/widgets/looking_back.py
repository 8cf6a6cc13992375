"""What the history and the vacuum of the open table are, for the views that look back."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from traitlets import Any as AnyTrait
from traitlets import Int, Unicode, observe

from compaction_kit.errors import InvalidArgumentError, StalePlanError
from compaction_kit.vacuum import VacuumPlan
from compaction_kit.widgets.job import Job, Watched, sentence_of
from compaction_kit.widgets.state import WorkbenchState


@dataclass(frozen=True, eq=False)
class Past:
    """What is known of the versions of a table, which belongs together; replaced as a whole.

    Attributes:
        versions: What `Table.versions()` returns; None if it was not read.
        ledger: What `Table.history()` returns.
        lives: The files' lifetimes, as the log has them.
        diff: From the version looked at to the latest.
        error: Why the versions, or the one looked at, can't be read, in one sentence.
    """

    versions: Any = None
    ledger: Any = None
    lives: Any = None
    diff: Any = None
    error: str = ""


class HistoryState(Watched):
    """The versions of the open table; `version` is set by anybody, `past` only here.

    The fields of `past` can be observed by their names.
    """

    version = Int(0, help="The version looked at")
    past = AnyTrait(Past(), help="The versions of the table, a Past")

    def __init__(self, bench: WorkbenchState):
        super().__init__()
        self.bench = bench
        self.reading = Job()
        self.observe(self.tell_fields, "past")
        bench.observe(self._forget, ["table", "files"])

    @property
    def versions(self) -> Any:
        """What `Table.versions()` returns, or None."""
        return self.past.versions

    def _forget(self, _: object = None) -> None:
        self.past = Past()

    def read(self) -> None:
        """Read the history, in the background, unless that has been done."""
        opened = self.bench.opened
        if self.versions is None and not self.past.error and opened.table is not None:
            self.reading.start_next(lambda job: self._read(opened.table, opened.files))

    def _read(self, table: Any, files: Any) -> None:
        if self.versions is not None:
            return
        try:
            past = Past(table.versions(), table.history(), table.log.lifetimes()[1])
        except Exception as error:
            past = Past(error=sentence_of(error))
        with self.bench.changing:
            if table is not self.bench.table or files is not self.bench.files:
                return
            if past.versions is not None:
                self.version = past.versions["version"][-1].as_py()
            self.past = self._compared(past)

    @observe("version")
    def _compare(self, _: object = None) -> None:
        self.past = self._compared(self.past)

    def _compared(self, past: Past) -> Past:
        table = self.bench.table
        if past.versions is None or table is None:
            return past
        try:
            latest = past.versions["version"][-1].as_py()
            return replace(past, diff=table.diff(self.version, latest), error="")
        except Exception as error:
            return replace(past, diff=None, error=sentence_of(error))

    def row(self) -> dict[str, Any]:
        """What `versions` has of the version looked at."""
        position = int(self.versions["version"].index(pa.scalar(self.version, pa.int64())).as_py())
        row: dict[str, Any] = self.versions.slice(position, 1).to_pylist()[0]
        return row


@dataclass(frozen=True, eq=False)
class Planned:
    """A vacuum's plan with what it is for; replaced as a whole.

    Attributes:
        plan: The plan; None if there is none.
        files: The files of the table that was planned; None if there is no plan yet.
        inputs: The retention, versions and days that it was asked for.
        error: Why not, in one sentence.
    """

    plan: VacuumPlan | None = None
    files: Any = None
    inputs: tuple[str, str, int] | None = None
    error: str = ""


class VacuumState(Watched):
    """A vacuum of the open table; `retention`, `keep` and `days` are set by anybody.

    The fields of `planned` can be observed by their names.
    """

    retention = Unicode(
        "", help='How long removed files are kept, such as "7 days"; empty: as the table is set'
    )
    keep = Unicode("", help="Versions that must stay readable, such as 3, 7; empty for none")
    days = Int(0, min=0, help="In how many days it would run; 0 for now")
    planned = AnyTrait(Planned(), help="The plan and what it is for, a Planned")
    result = AnyTrait(None, help="The VacuumResult of the last run, or None")
    ran = Unicode("", help="The table of the last run, or of the one that is under way")

    def __init__(self, bench: WorkbenchState):
        super().__init__()
        self.bench = bench
        self.planning = Job()
        self.running = Job()
        self.observe(self.tell_fields, "planned")
        bench.observe(self._forget, ["table", "files"])

    @property
    def plan(self) -> Any:
        """The VacuumPlan on screen, or None."""
        return self.planned.plan

    @property
    def error(self) -> str:
        """Why there is no plan, in one sentence."""
        return self.planned.error

    @property
    def inputs(self) -> tuple[str, str, int]:
        """What a plan is asked for now."""
        return self.retention, self.keep, self.days

    @property
    def is_settled(self) -> bool:
        """Whether the plan is that of the table and the inputs on screen."""
        planned, opened = self.planned, self.bench.opened
        of_table = planned.files is not None and planned.files is opened.files and not opened.pending
        return of_table and planned.inputs == self.inputs

    def _forget(self, change: Any = None) -> None:
        self.planned = Planned()
        if change is None or change.name == "table":
            self.result = None
            self.ran = self.ran if self.running.running else ""
            self.running.reset()

    @observe("retention", "keep", "days")
    def _replan(self, _: object = None) -> None:
        self.look()

    def look(self) -> None:
        """Plan, in the background."""
        if self.bench.table is not None:
            self.planning.start_next(lambda job: self._look())

    def _look(self) -> None:
        opened, inputs = self.bench.opened, self.inputs
        if opened.files is None or (self.planned.files is opened.files and self.planned.inputs == inputs):
            return
        planned = Planned(None, opened.files, inputs)
        try:
            planned = replace(planned, plan=self._plan(opened.table))
        except Exception as error:
            planned = replace(planned, error=sentence_of(error))
        with self.bench.changing:
            if opened.files is self.bench.files and inputs == self.inputs:
                self.planned = planned

    def _plan(self, table: Any) -> Any:
        at = datetime.now(UTC) + timedelta(days=self.days) if self.days else None
        try:
            kept = [int(word) for word in self.keep.replace(",", " ").split()] or None
        except ValueError:
            raise InvalidArgumentError(
                f'keep_versions="{self.keep}" are not versions: write them as 3, 7.'
            ) from None
        return table.plan_vacuum(retention=self.retention or None, keep_versions=kept, at=at)

    @property
    def password(self) -> str:
        """What has to be typed before anything is deleted: the table's name."""
        return self.bench.table.path.name if self.bench.table is not None else ""

    def run(self, typed: str) -> bool:
        """Delete what the plan shows, in the background, if the table's name was typed."""
        with self.bench.changing:
            plan, table, is_wanted = self.plan, self.bench.table, self.is_settled
        if plan is None or plan.is_empty or self.days or typed != self.password:
            return False
        return self.running.start(lambda job: self._run(plan, table, job) if is_wanted else _refuse())

    def _run(self, plan: VacuumPlan, table: Any, job: Job) -> None:
        def report(progress: Any) -> None:
            job.report(progress.fraction, str(progress))

        self.ran = table.name
        try:
            self.result = plan.run(progress=report)
        finally:
            if table is self.bench.table:
                self.bench.reload()


def _refuse() -> None:
    raise StalePlanError(
        "Nothing was deleted: the plan on screen was not the one for what is chosen now. Look at the new "
        "one, and type the table's name again."
    )

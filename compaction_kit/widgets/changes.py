"""The open table, and changes to it: requested, checked, and carried out; independent of widgets."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from traitlets import HasTraits, Instance, Int, Unicode

from compaction_kit.compaction import CompactionPlan
from compaction_kit.errors import CompactionKitError, InvalidArgumentError, RunCancelled
from compaction_kit.execute import CompactionResult
from compaction_kit.execute.jobs import WorkCancelled, run_cancellable
from compaction_kit.files import Files
from compaction_kit.plan import Planner
from compaction_kit.query import with_table
from compaction_kit.reads import ReadComparison
from compaction_kit.table import Table
from compaction_kit.text import parse_size
from compaction_kit.widgets.job import Job, Lookup, attempt

WAITING = "Waiting for Spark to start; it starts only once"
# The name, the predicate, the least and the largest size, the order, the budget, `full` and `by_output`.
Inputs = tuple[str, str, int | None, int | None, str, str, bool, bool]


@dataclass(frozen=True, eq=False)
class Opened:
    """A table with its files and their plan, which belong together and are replaced together.

    `files` are selected by `where`; `plan` is the plan for `inputs` that `planner` makes from them, and
    `table_plan` is the plan for the whole table with its own target size. While `pending` is true, the table
    is read again; `error` says in one sentence why there is no table or no plan.
    """

    table: Table | None = None
    where: str = ""
    files: Files | None = None
    table_plan: CompactionPlan | None = None
    planner: Planner | None = None
    plan: CompactionPlan | None = None
    inputs: Inputs | None = None
    pending: bool = False
    error: str = ""

    def planned(self, inputs: Inputs) -> "Opened":
        """Return a copy with the plan for the inputs, or with the reason why there is none."""
        if self.planner is None or self.table is None:
            return replace(self, inputs=inputs)
        plan, error = attempt(partial(_plan, self.planner, self.table, inputs))
        return replace(self, inputs=inputs, plan=plan, error=error)


def _plan(planner: Planner, table: Table, inputs: Inputs) -> CompactionPlan:
    _, where, least, largest, order, budget, full, by_output = inputs
    if least is None or largest is None:
        raise InvalidArgumentError("There is no plan, because a file size can't be read: correct it.")
    own = table.thresholds()
    thresholds = replace(own, min_file_size=least, max_file_size=largest)
    if by_output and largest != own.max_file_size:
        thresholds = planner.for_outputs(thresholds, order)
    limit = parse_size(budget, "budget") if budget else None
    return CompactionPlan.of(planner, thresholds, where or None, order, limit, full=full, handle=table.handle)


def spark_of(table: Table, job: Job) -> SparkSession:
    """Return the session for an existing table; while the session starts, the job's message says so."""
    table.log.segment()
    if table.handle.session is None:
        job.report(0.0, WAITING)
    return table.spark


class Changes(HasTraits):
    """The open table, the jobs on it, the plans that change it, and their effect on a query."""

    name = Unicode("", help="The table to open; empty for none")
    query = Unicode("", help="SQL with {table} or the table's own name, or a condition")
    retention = Unicode("", help='How long a vacuum keeps removed files: "7 days"; empty: as set')
    keep = Unicode("", help="Versions that a vacuum keeps readable, such as 3, 7; empty for none")
    days = Int(0, min=0, help="In how many days the vacuum would run; 0 for now")
    version = Int(0, help="The version that History looks at")
    opened = Instance(Opened, (), help="The open table and its plan")
    # The target version of the last restore that began.
    restored: int | None = None
    # Reads the table again; implemented by the state that inherits from this class.
    reload: Callable[[], Any]

    def __init__(self) -> None:
        super().__init__()
        self.opened = Opened()
        # This lock lets jobs and users change `opened` one after another.
        self.changing = threading.RLock()
        self.loading, self.making = Job(), Job(stops="Stop; what was made is deleted")
        self.running = Job(stops="Stop; what is not committed is undone")
        self.vacuuming = Job(stops="Stop; files that are deleted by then stay deleted")
        self.restoring = Job(stops="Stop; nothing is changed unless it is committed by then")
        self.searching, self.surveying, self.finding, self.following = (Lookup("root") for _ in range(4))
        self.measuring, self.predicting = Lookup("table"), Lookup("plan")
        # The previous versions stay on screen while versions are read again.
        self.reading = Lookup("table")
        self.sampling, self.comparing, self.quoting = (Lookup("files") for _ in range(3))
        self.planning_restore, self.planning_vacuum = Lookup("files"), Lookup("files")
        self.jobs = [job for job in vars(self).values() if isinstance(job, Job)]
        self.observe(self._on_opened, "opened")
        for job in (self.predicting, self.measuring):
            self.observe(job.forget, "query")

    def _on_opened(self, change: Any) -> None:
        fields, restored = ("table", "files", "plan"), self.planning_restore.asked
        differ = [name for name in fields if getattr(change.old, name) is not getattr(change.new, name)]
        self.forget(*differ)
        if differ[:1] == ["files"] and restored:
            # Others have committed: the restore is planned again, with the commits of others that it undoes.
            self.plan_restore(*restored)
        if self.running.error and (change.new.pending or change.new.inputs != change.old.inputs):
            # After a failed run, the table is read again or planned with other inputs.
            self.running.forget()

    def forget(self, *scopes: str) -> None:
        """Forget the results and answers of these scopes: "root", "table", "files" or "plan"."""
        for job in self.jobs:
            if job.scope in scopes:
                job.forget()

    @property
    def table(self) -> Table | None:
        """The open table, or None."""
        return self.opened.table

    @property
    def files(self) -> Files | None:
        """The files that are planned, or None."""
        return self.opened.files

    @property
    def no_table(self) -> str:
        """A sentence if there are no files to show and none are being read, else empty."""
        if self.files is not None or self.opened.pending:
            return ""
        return "The table can't be read." if self.opened.error else "No table is open."

    @property
    def plan(self) -> CompactionPlan | None:
        """The plan on screen, or None."""
        return self.opened.plan

    @property
    def is_clustered(self) -> bool:
        """Whether OPTIMIZE clusters the open table."""
        return self.opened.planner is not None and self.opened.planner.clustering is not None

    @property
    def result(self) -> CompactionResult | None:
        """The result of the last run, if it changed the open table; else None."""
        result = self.running.result if self.running.about == self.name else None
        return result if result is not None and result.versions else None

    @property
    def before_run(self) -> int | None:
        """The version before the last run, if the run changed the open table; else None."""
        return self.result.versions[0] - 1 if self.result is not None else None

    @property
    def reads(self) -> ReadComparison | None:
        """The comparison of a query before and after the last run, or None."""
        found: ReadComparison | None = self.measuring.get(self.result)
        return found

    @property
    def sql(self) -> str:
        """The query, with {table} for the open table."""
        table, sql = self.table, self.query.strip()
        return sql if table is None else str(with_table(sql, table.handle.store, table.name))

    def predict(self) -> None:
        """Count the files that the query opens now and after the plan, in the background."""
        table, plan, sql = self.table, self.plan, self.sql

        def work(job: Job) -> Any:
            return table and plan and spark_of(table, job) and plan.predict_reads(sql, job.report)

        self.predicting.ask(work, plan, again=True)

    def measure(self) -> None:
        """Run the query before and after the last run, in the background."""
        table, result, sql = self.table, self.result, self.sql
        if table is None or result is None:
            return

        def work(job: Job) -> Any:
            report = partial(job.report, 0.0, "Running the query six times at each of the two versions")
            try:
                return run_cancellable(spark_of(table, job), partial(result.measure_reads, sql), report)
            except WorkCancelled:
                raise RunCancelled("Cancelled: the query was not measured.") from None

        self.measuring.ask(work, result, again=True)

    @property
    def _vacuum(self) -> tuple[Any, ...]:
        return self.files, self.retention, self.keep, self.days

    def plan_vacuum(self) -> None:
        """Plan a vacuum for the chosen inputs, in the background."""
        table, asked = self.table, self._vacuum
        _, retention, keep, days = asked

        def work(_: Job) -> Any:
            at = datetime.now(UTC) + timedelta(days=days) if days else None
            try:
                kept = [int(version) for version in keep.replace(",", " ").split()] or None
            except ValueError:
                raise InvalidArgumentError(f'keep_versions="{keep}": write versions as 3, 7.') from None
            return table and table.plan_vacuum(retention=retention or None, keep_versions=kept, at=at)

        if self.files is not None:
            self.planning_vacuum.ask(work, *asked)

    @property
    def can_vacuum(self) -> bool:
        """Whether there is a vacuum to run for the table and the inputs on screen."""
        plan = self.planning_vacuum.get(*self._vacuum)
        return plan is not None and not plan.is_empty and not self.days and not self.opened.pending

    @property
    def password(self) -> str:
        """The table's name, which has to be typed before anything is deleted."""
        return self.table.handle.folder_name if self.table is not None else ""

    def vacuum(self, typed: str) -> bool:
        """Run the planned vacuum in the background, if the table's name was typed."""
        with self.changing:
            is_armed = typed and typed == self.password and self.can_vacuum
            plan, job = self.planning_vacuum.value if is_armed else None, self.vacuuming
        return self.carry_out(job, plan, lambda done: job.report(done.fraction, str(done)))

    def plan_restore(self, version: int | None) -> None:
        """Plan to restore a version, in the background."""
        table = self.table
        if table is not None and version is not None:
            self.restoring.forget()
            self.planning_restore.ask(lambda job: table.plan_restore(version), version, again=True)

    def restore(self) -> bool:
        """Run the planned restore in the background; returns whether it began."""
        plan, job = self.planning_restore.value, self.restoring
        allowed = plan if plan is not None and plan.can_run else None
        self.restored = allowed and allowed.target
        return self.carry_out(job, allowed, lambda _: job.report(0.0, f"Restoring version {plan.target}"))

    def carry_out(self, job: Job, plan: Any, progress: Callable[..., None], **options: Any) -> bool:
        """Run a plan if there is one, then read the table and plan again; returns whether the run began."""
        table = self.table
        if plan is None or table is None:
            return False

        def work(job: Job) -> Any:
            try:
                result = plan.run(progress=progress, **options)
                if job is self.restoring:
                    # The result of the compaction doesn't apply any more.
                    self.running.forget()
                    if table is self.table:
                        # With the former latest version chosen, History goes on to the restored one.
                        self.version = plan.version
                return result
            except CompactionKitError as error:
                if "make a new plan" not in str(error):
                    raise
                how = "Plan the restore again." if job is self.restoring else "This page shows one already."
                raise type(error)(f"{error} {how}") from None
            finally:
                if job is self.restoring:
                    self.planning_restore.forget()
                # After a failure too, because other writers may have committed meanwhile.
                self.surveying.forget()
                if table is self.table:
                    self.reload()

        return job.start(work, table.name)

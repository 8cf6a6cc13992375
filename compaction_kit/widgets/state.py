"""What the workbench is looking at: one state that every view observes. It knows no widget."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from traitlets import Bool, Instance, Int, List, Unicode, observe

from compaction_kit import datasets
from compaction_kit.active import active_spark
from compaction_kit.compaction import CompactionPlan
from compaction_kit.errors import (
    CompactionKitError,
    InvalidArgumentError,
    StalePlanError,
    TableNotFoundError,
)
from compaction_kit.execute import CompactionResult, Progress
from compaction_kit.execute.work import Countdown
from compaction_kit.files import Files
from compaction_kit.plan import Planner
from compaction_kit.plan.order import SIZE
from compaction_kit.reads import ReadComparison
from compaction_kit.sql import name_parts
from compaction_kit.storage import is_folder, local_path
from compaction_kit.surveys import find_tables
from compaction_kit.table import Table, open_table
from compaction_kit.text import GIB, parse_size
from compaction_kit.verdict import Verdict
from compaction_kit.widgets.job import Job, Lookup, Watched, attempt, sentence_of

_NOT_RUN = (
    "Nothing was {}: the plan on screen was not the one for what is chosen now. Look at the new one before "
    "you run it."
)
# The name, the predicate, the least and the largest size, the order and the budget of a plan.
Inputs = tuple[str, str, int | None, int | None, str, str]


@dataclass(frozen=True, eq=False)
class Opened:
    """A table with its files and the plan for them, which belong together; replaced as a whole.

    Attributes:
        table: The open table; None if there is none, and `error` may say why.
        where: The predicate that selected `files`.
        files: The files that are planned.
        table_plan: The plan for the whole table with its own target size, for the verdict.
        planner: Plans them; None as long as they are not read, or can't be planned.
        plan: The plan for `inputs`.
        inputs: The inputs of the last plan.
        pending: Whether the table is being read again, so that another plan comes.
        error: Why there is no table, or no plan, in one sentence.
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

    @property
    def is_latest(self) -> bool:
        """Whether the files are those of the latest version, and of no table that took this one's place."""
        if self.table is None or self.files is None:
            return False
        try:
            latest = self.table.log.segment()
        except CompactionKitError:
            return False
        segments = (self.files.snapshot.segment, latest)
        last_commits = {segment.commits[-1] for segment in segments if segment.commits}
        return self.files.version == latest.version and len(last_commits) < 2

    def planned(self, inputs: Inputs) -> "Opened":
        """Return the same with the plan for the inputs, or with the reason why there is none."""
        if self.planner is None or self.table is None:
            return replace(self, inputs=inputs)
        plan, error = attempt(partial(_plan, self.planner, self.table, inputs))
        return replace(self, inputs=inputs, plan=plan, error=error)


def _plan(planner: Planner, table: Table, inputs: Inputs) -> CompactionPlan:
    _, where, least, largest, order, budget = inputs
    if least is None or largest is None:
        raise InvalidArgumentError("There is no plan, because a file size can't be read: correct it.")
    thresholds = replace(table.thresholds(), min_file_size=least, max_file_size=largest)
    limit = parse_size(budget, "budget") if budget else None
    return CompactionPlan.of(planner, thresholds, where or None, order, limit, handle=table.handle)


class WorkbenchState(Watched):
    """The open table, what is chosen, and the work under way.

    Anybody sets the inputs; `tables` and `opened` are set only here.
    """

    root = Unicode("", help="The folder, schema or catalog to look for tables in, or a table")
    name = Unicode("", help="The table to open; empty for none")
    where = Unicode("", help="SQL over partition columns; empty for all files")
    # None where what is typed is no size: then there is no plan.
    min_file_size = Int(GIB, min=1, allow_none=True, help="Files below this size in bytes are rewritten")
    max_file_size = Int(GIB, min=1, allow_none=True, help="Bytes that a bin may hold")
    order = Unicode(SIZE, help="In which order files are put into bins")
    budget = Unicode("", help='Bytes that may be rewritten, such as "10 GiB"; empty for no limit')
    strategy = Unicode("auto", help="How the plan is run")
    verify = Bool(True, help="Whether the content is compared after a run")
    query = Unicode("", help="SQL with {table} or the table's own name, or a condition")
    version = Int(0, help="The version that History looks at")
    retention = Unicode(
        "", help='How long a vacuum keeps removed files: "7 days"; empty: as the table is set'
    )
    keep = Unicode("", help="Versions that a vacuum keeps readable, such as 3, 7; empty for none")
    days = Int(0, min=0, help="In how many days the vacuum would run; 0 for now")
    stream = Unicode("", help="The sink log to read, as sink_log() takes it; empty for none")
    ahead = Int(100, min=1, help="Batches to look ahead")

    tables = List(Unicode(), help="The tables found under the root")
    opened = Instance(Opened, (), help="The open table and its plan")
    num_refreshes = Int(0, help="How often everything was read again")

    def __init__(self, root: str | Path = "", table: Table | None = None):
        """Open a table, or the first one that is found under the root."""
        super().__init__()
        self.opened = Opened()
        self.jobs: list[Job] = [Job() for _ in range(5)]
        self.loading, self.making, self.running, self.vacuuming, self.restoring = self.jobs
        # What is looked up of the folder, of the table's files, of the plan, and of the last run.
        self.surveying, self.finding = self.lookup(), self.lookup()
        self.reading, self.sampling, self.planning_restore = (self.lookup("files") for _ in range(3))
        self.planning_vacuum, self.predicting = self.lookup("files"), self.lookup("plan")
        self.measuring, self.following = self.lookup("table"), self.lookup()
        # `opened` is changed by jobs and by people, one after another.
        self.changing = threading.RLock()
        # The minimum as it was chosen, and how often the table was to be read.
        self._chosen_min, self._num_reads = self.min_file_size, 0
        self._given = table
        self.root = str(root)
        if table is not None:
            self.name = table.name

    def lookup(self, field: str = "") -> Lookup:
        """Make a lookup, which is forgotten when this field of `opened` changes."""
        made = Lookup()
        self.jobs.append(made)

        def on_opened(change: Any) -> None:
            if getattr(change.old, field) is not getattr(change.new, field):
                made.forget()

        if field:
            self.observe(on_opened, "opened")
        return made

    @property
    def table(self) -> Table | None:
        """The open table, or None."""
        return self.opened.table

    @property
    def files(self) -> Files | None:
        """The files that are planned, or None."""
        return self.opened.files

    @property
    def plan(self) -> CompactionPlan | None:
        """The plan on screen, or None."""
        return self.opened.plan

    @property
    def input_error(self) -> str:
        """Why there is no plan for what is typed and chosen, though the table can be planned."""
        return self.opened.error if self.opened.table_plan is not None else ""

    @property
    def inputs(self) -> Inputs:
        """The inputs that a plan is made for now."""
        return self.name, self.where, self.min_file_size, self.max_file_size, self.order, self.budget

    @property
    def is_settled(self) -> bool:
        """Whether what is opened is the answer to the inputs."""
        return not self.opened.pending and self.opened.inputs == self.inputs

    @property
    def can_run(self) -> bool:
        """Whether there is a plan to run, of the table and the inputs on screen."""
        return self.plan is not None and not self.plan.is_empty and self.is_settled

    @property
    def result(self) -> CompactionResult | None:
        """The result of the last run, if that changed the open table; else None."""
        result = self.running.result if self.running.about == self.name else None
        return result if result is not None and result.versions else None

    @property
    def reads(self) -> ReadComparison | None:
        """What a query measured before and after the last run, or None."""
        found: ReadComparison | None = self.measuring.get(self.result)
        return found

    @property
    def verdict(self) -> Verdict | None:
        """What to know of the open table, whatever is chosen for a plan; None as long as that isn't known."""
        opened = self.opened
        stopped = self.running.error if self.running.about == self.name else ""
        error = "" if self.input_error else opened.error
        return Verdict.of(opened.files, opened.table_plan, error, self.result, stopped, self.reads)

    @observe("root")
    def _find(self, _: object = None) -> None:
        self.stream = ""
        for lookup in (self.surveying, self.finding):
            lookup.forget()
        if self._search():
            self._open_first()

    def _search(self) -> bool:
        self.tables = []
        try:
            self.tables = find_tables(self.root) if self.root else []
        except OSError:
            pass
        except CompactionKitError as error:
            self.name = ""
            self.opened = Opened(error=str(error))
            return False
        return True

    def _open_first(self) -> None:
        # A name that is no folder may be a table in the catalog, or a mistake that gets a sentence.
        name = self.tables[0] if self.tables else ("" if is_folder(self.root) else self.root)
        if name == self.name:
            self._open()
        else:
            self.name = name

    @observe("name")
    def _open(self, _: object = None) -> None:
        with self.changing:
            # From here on nothing of the table before can be run, whatever fails below.
            self.opened = Opened(pending=bool(self.name))
            for job in (self.running, self.vacuuming, self.restoring):
                job.reset()
            self.query = ""
            if not self.name:
                return
            try:
                given = self._given
                table = given if given is not None and given.name == self.name else open_table(self.name)
                thresholds = table.thresholds()
            except Exception as error:
                # A folder that does not exist yet is no mistake.
                missing = isinstance(error, TableNotFoundError)
                is_new = missing and self.name == self.root and not self.tables
                self.opened = Opened(error="" if is_new else sentence_of(error))
                return
            self.where, self.order, self.budget = "", SIZE, ""
            self.max_file_size, self.min_file_size = thresholds.max_file_size, thresholds.min_file_size
            self._chosen_min = thresholds.min_file_size
            self.opened = Opened(table)
            self.reload()

    @observe("min_file_size", "max_file_size", "budget")
    def _on_threshold(self, change: Any) -> None:
        with self.changing:
            if change.name == "min_file_size":
                self._chosen_min = self.min_file_size
            elif change.name == "max_file_size" and self.max_file_size and self._chosen_min:
                # As `Table.plan_compaction` does: the minimum is lowered as long as the maximum is below it.
                chosen = self._chosen_min
                self.min_file_size = min(chosen, self.max_file_size)
                self._chosen_min = chosen
            opened = self.opened
            if opened.planner is not None and not self.is_settled and not opened.pending:
                self.opened = opened.planned(self.inputs)

    @observe("where", "order")
    def reload(self, _: object = None) -> None:
        """Read the table again, in the background, and plan it."""
        with self.changing:
            if self.table is None:
                return
            self._num_reads += 1
            self.opened = replace(self.opened, pending=True)
            table, where, number = self.table, self.where, self._num_reads
        self.loading.start_next(lambda job: self._load(table, where, number))

    def _load(self, table: Table, where: str, number: int) -> None:
        # If reading fails, the files read before stay on screen.
        read = Opened(table, self.opened.where, self.files)
        try:
            files = table.files()
            if not where:
                read = Opened(table, where, files)
                # The files of a table that was just opened are shown before the plan is made.
                with self.changing:
                    if self.files is None and self._is_wanted(read, number):
                        self.opened = replace(read, pending=True)
            table_plan = self.opened.table_plan
            if not where or table_plan is None or table_plan.source.snapshot is not files.snapshot:
                planner = table.planner().prepared()
                table_plan = CompactionPlan.of(planner, table.thresholds(), handle=table.handle)
            read = replace(read, table_plan=table_plan)
            if where:
                planner = table.planner(where).prepared()
            # The same files, unless another writer has committed meanwhile: they are drawn already.
            is_same = not where and planner.files.snapshot is files.snapshot
            read = replace(read, where=where, files=files if is_same else planner.files, planner=planner)
        except Exception as error:
            read = replace(read, error=sentence_of(error))
        read = read.planned(self.inputs)
        with self.changing:
            if self._is_wanted(read, number) and where == self.where:
                self.opened = read if read.inputs == self.inputs else read.planned(self.inputs)

    def _is_wanted(self, read: Opened, number: int) -> bool:
        return read.table is self.table and number == self._num_reads

    def look(self) -> None:
        """Read the table again if others have committed to it, or have put it back, in the background."""

        def work(_: Job) -> None:
            if not self.opened.pending and (self.opened.planner is None or not self.opened.is_latest):
                self.reload()

        with self.changing:
            if self.table is not None and not self.opened.pending:
                self.loading.start_next(work)

    def refresh(self) -> None:
        """Look again for tables and logs, and read the table that is open as it is now."""
        self.num_refreshes += 1
        for lookup in (self.surveying, self.finding, self.following):
            lookup.forget()
        if not self._search():
            return
        if self.table is not None:
            self.reload()
        elif self.name in self.tables:
            self._open()
        else:
            self._open_first()

    def meet_session(self) -> None:
        """Look in a session that has started for a root that is no folder."""
        asks = name_parts(self.root) and active_spark() is not None and not is_folder(self.root)
        if self.table is None and asks:
            self.refresh()

    def make_flights(self) -> None:
        """Ingest the flights under the root, in the background, and open them."""
        root = self.root

        def work(job: Job) -> None:
            job.report(0.0, "Ingesting a year of flights, a commit a day")
            datasets.flights(local_path(root) / "flights")
            if root == self.root:
                self._find()

        self.making.start(work)

    def run(self) -> bool:
        """Run the plan on screen, in the background; returns whether it began."""
        with self.changing:
            plan, is_wanted = self.plan, self.can_run
        if plan is None or plan.is_empty:
            return False
        options: dict[str, Any] = {"strategy": self.strategy, "verify": self.verify}

        def work(job: Job) -> CompactionResult:
            return plan.run(**options, progress=partial(_report, job, Countdown()))

        self.measuring.forget()
        return self.carry_out(self.running, work, "" if is_wanted else _NOT_RUN.format("run"))

    @property
    def _vacuum(self) -> tuple[Any, ...]:
        return self.files, self.retention, self.keep, self.days

    def plan_vacuum(self, make: Callable[[Table], Any]) -> None:
        """Plan a vacuum for what is chosen, in the background, by this function."""
        table = self.table
        if table is not None and self.files is not None:
            self.planning_vacuum.ask(lambda job: make(table), *self._vacuum)

    @property
    def can_vacuum(self) -> bool:
        """Whether there is a vacuum to run, of the table and the inputs on screen."""
        plan = self.planning_vacuum.get(*self._vacuum)
        return plan is not None and not plan.is_empty and not self.days and not self.opened.pending

    @property
    def password(self) -> str:
        """The table's name, which has to be typed before anything is deleted."""
        return self.table.handle.folder_name if self.table is not None else ""

    def vacuum(self, typed: str) -> bool:
        """Delete what the plan shows, in the background, if the table's name was typed."""
        with self.changing:
            plan, is_wanted = self.planning_vacuum.value, self.can_vacuum
        if plan is None or plan.is_empty or self.days or not typed or typed != self.password:
            return False

        def work(job: Job) -> Any:
            return plan.run(progress=lambda progress: job.report(progress.fraction, str(progress)))

        return self.carry_out(self.vacuuming, work, "" if is_wanted else _NOT_RUN.format("deleted"))

    def plan_restore(self, version: int | None) -> None:
        """Plan to restore a version, in the background."""
        table = self.table
        if table is not None and version is not None:
            self.restoring.reset()
            self.planning_restore.forget()
            self.planning_restore.ask(lambda job: table.plan_restore(version), version)

    def restore(self) -> bool:
        """Restore as planned, in the background; returns whether it began."""
        plan = self.planning_restore.value
        if plan is None or not plan.can_run:
            return False

        def work(job: Job) -> Any:
            result = plan.run(progress=lambda: job.report(0.0, f"Restoring version {plan.target}"))
            # What the compaction did is no longer so.
            self.running.reset()
            return result

        return self.carry_out(self.restoring, work)

    def carry_out(self, job: Job, run: Callable[[Job], Any], refusal: str = "") -> bool:
        """Run a plan that was looked at, and read the table again; returns whether it began."""
        table = self.table
        if table is None:
            return False

        def work(job: Job) -> Any:
            if refusal:
                raise StalePlanError(refusal)
            try:
                return run(job)
            finally:
                # After a failure too: other writers may have committed meanwhile.
                self.surveying.forget()
                if table is self.table:
                    self.reload()

        return job.start(work, table.name)


def _report(job: Job, countdown: Countdown, progress: Progress) -> None:
    times = ", ".join(filter(None, (f"{progress.seconds:.0f} s", countdown(progress))))
    job.report(progress.fraction, f"{progress} ({times})")

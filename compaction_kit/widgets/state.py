"""What the workbench is looking at: one state that every view observes. It knows no widget."""

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from traitlets import Bool, Instance, Int, List, Unicode, observe

from compaction_kit import datasets
from compaction_kit.active import active_spark
from compaction_kit.compaction import CompactionPlan
from compaction_kit.errors import CompactionKitError, TableNotFoundError
from compaction_kit.execute import CompactionResult, Progress
from compaction_kit.execute.work import Countdown
from compaction_kit.files import Files
from compaction_kit.plan.order import SIZE
from compaction_kit.reads import ReadComparison
from compaction_kit.sql import name_parts
from compaction_kit.storage import is_folder, local_path
from compaction_kit.surveys import Survey, find_tables, survey
from compaction_kit.table import Table, open_table
from compaction_kit.text import GIB
from compaction_kit.verdict import Verdict
from compaction_kit.widgets.job import Job, Runs, sentence_of
from compaction_kit.widgets.opened import Inputs, Opened

_NOTHING_RUN = (
    "Nothing was run: the plan on screen was not the one for what is chosen now. The new one comes at "
    "once: look at it, and run it then."
)


class WorkbenchState(Runs):
    """The open table, the thresholds and the plan for them.

    Inputs are set by anybody; the answers, from `tables` on, are set only here. The fields of `opened`
    can be observed by their names.
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

    tables = List(Unicode(), help="The tables found under the root")
    opened = Instance(Opened, (), help="The open table and its plan")
    result = Instance(CompactionResult, allow_none=True, help="The result of the last run, or None")
    reads = Instance(ReadComparison, allow_none=True, help="What was measured of a query, or None")
    survey = Instance(Survey, allow_none=True, help="The survey of the tables found, or None")
    num_refreshes = Int(0, help="How often everything was read again")

    def __init__(self, root: str | Path = "", table: Table | None = None):
        """Open a table, or the first one that is found under the root."""
        super().__init__()
        self.loading = Job()
        self.making = Job()
        self.measuring = Job()
        self.surveying = Job()
        # `opened` is changed by jobs and by people, one after another.
        self.changing = threading.RLock()
        # The minimum as it was chosen, and how often the table was to be read.
        self._chosen_min, self._num_reads = self.min_file_size, 0
        self._given = table
        self.observe_fields("opened")
        self.root = str(root)
        if table is not None:
            self.name = table.name

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
    def error(self) -> str:
        """Why there is no table, or no plan, in one sentence."""
        return self.opened.error

    @property
    def input_error(self) -> str:
        """Why there is no plan for what is typed and chosen, though the table can be planned."""
        return self.error if self.opened.table_plan is not None else ""

    @property
    def inputs(self) -> Inputs:
        """The inputs that a plan is made for now."""
        return Inputs(self.name, self.where, self.min_file_size, self.max_file_size, self.order, self.budget)

    @property
    def is_settled(self) -> bool:
        """Whether what is opened is the answer to the inputs."""
        return not self.opened.pending and self.opened.inputs == self.inputs

    @property
    def can_run(self) -> bool:
        """Whether there is a plan to run, of the table and the inputs on screen."""
        return self.plan is not None and not self.plan.is_empty and self.is_settled

    @property
    def verdict(self) -> Verdict | None:
        """What to know of the open table, whatever is chosen for a plan; None as long as that isn't known."""
        opened, result, stopped, reads = self.opened, None, "", None
        if self.ran == self.name:
            result, reads = self.result, self.reads
            stopped = self.running.message if self.running.status in ("failed", "cancelled") else ""
        error = "" if self.input_error else opened.error
        return Verdict.of(opened.files, opened.table_plan, error, result, stopped, reads)

    @observe("result")
    def _forget_reads(self, _: object) -> None:
        self.reads = None
        self.measuring.reset()

    @observe("root")
    def _find(self, _: object = None) -> None:
        self.survey = None
        self.surveying.cancel()
        self._search(self._open_first)

    def _asks_catalog(self) -> bool:
        return bool(name_parts(self.root)) and active_spark() is not None and not is_folder(self.root)

    def _search(self, then: Callable[[], None]) -> None:
        """Find the tables, then go on."""
        self.tables = []
        try:
            self.tables = find_tables(self.root) if self.root else []
        except OSError:
            pass
        except CompactionKitError as error:
            self.name = ""
            self.opened = Opened(error=str(error))
            return
        then()

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
            self.forget_run()
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

    @observe("where", "order")
    def _select(self, _: object = None) -> None:
        self.reload()

    @observe("min_file_size", "max_file_size", "budget")
    def _on_threshold(self, change: Any) -> None:
        with _garbage_later(), self.changing:
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

    def reload(self) -> None:
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
                self._show_first(replace(read, pending=True), number)
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

    def _show_first(self, read: Opened, number: int) -> None:
        """The files of a table that was just opened are shown before the plan is made."""
        with self.changing:
            if self.files is None and self._is_wanted(read, number):
                self.opened = read

    def _is_wanted(self, read: Opened, number: int) -> bool:
        return read.table is self.table and number == self._num_reads

    def look(self) -> None:
        """Read the table again if others have committed to it, or have put it back, in the background."""
        with self.changing:
            if self.table is not None and not self.opened.pending:
                self.loading.start_next(lambda job: self._look())

    def _look(self) -> None:
        opened = self.opened
        if not opened.pending and (opened.planner is None or not opened.is_latest):
            self.reload()

    def refresh(self) -> None:
        """Look again for tables, and read the one that is open as it is now."""
        self.survey = None
        self.num_refreshes += 1
        self._search(self._open_again)

    def _open_again(self) -> None:
        if self.table is not None:
            self.reload()
        elif self.name in self.tables:
            self._open()
        else:
            self._open_first()

    def meet_session(self) -> None:
        """Look in a session that has started for a root that is no folder."""
        if self.table is None and self._asks_catalog():
            self.refresh()

    def look_around(self) -> None:
        """Survey the tables found, in the background, unless that has been done."""
        if self.survey is None and self.tables:
            self.surveying.start_next(self._survey)

    def _survey(self, job: Job) -> None:
        if self.survey is not None:
            return

        def report(done: int, total: int, name: str) -> None:
            job.report(done / total, f"Surveyed {done} of {total} tables")

        tables = list(self.tables)
        found = survey(tables, progress=report)
        if tables == self.tables:
            self.survey = found

    def run(self) -> bool:
        """Run the plan in the background; returns whether it began."""
        with self.changing:
            plan, table, is_wanted = self.plan, self.table, self.can_run
        if plan is None or table is None or plan.is_empty:
            return False
        if not is_wanted:
            return self.refuse(_NOTHING_RUN)
        options: dict[str, Any] = {"strategy": self.strategy, "verify": self.verify}

        def run(job: Job) -> CompactionResult:
            result = plan.run(**options, progress=partial(_report, job, Countdown()))
            self.survey = None
            return result

        return self.start_run(self, table, run)

    def measure(self, query: str) -> bool:
        """Time a query before and after the last run, in the background; returns whether it began."""
        result = self.result
        if result is None or not result.versions:
            return False

        def work(job: Job) -> None:
            job.report(0.0, "Running the query at both versions, several times")
            reads = result.measure_reads(query)
            if result is self.result:
                self.reads = reads

        return self.measuring.start(work)

    def make_flights(self) -> None:
        """Ingest the flights under the root, in the background, and open them."""
        root = self.root

        def work(job: Job) -> None:
            job.report(0.0, "Ingesting a year of flights, a commit a day")
            datasets.flights(local_path(root) / "flights")
            if root == self.root:
                self._find()

        self.making.start(work)


@contextlib.contextmanager
def _garbage_later() -> Iterator[None]:
    """Collect the garbage of what is drawn meanwhile at once, when it is done.

    A figure leaves some 100,000 objects behind. If Python decides when to collect them, every eighth move of
    a slider waits until those of all eight are collected.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
            gc.collect(0)


def _report(job: Job, countdown: Countdown, progress: Progress) -> None:
    times = ", ".join(filter(None, (f"{progress.seconds:.0f} s", countdown(progress))))
    job.report(progress.fraction, f"{progress} ({times})")

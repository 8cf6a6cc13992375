"""What the workbench is looking at: one state that every view observes."""

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from traitlets import Any as AnyTrait
from traitlets import Bool, HasTraits, Int, List, Unicode, observe

from compaction_kit.errors import CompactionKitError
from compaction_kit.execute import Progress
from compaction_kit.plan.order import SIZE
from compaction_kit.sizes import GIB, parse_size
from compaction_kit.survey import find_tables, survey
from compaction_kit.table import Table, open_table
from compaction_kit.widgets.job import Job


class WorkbenchState(HasTraits):
    """The open table, the thresholds and the plan for them; knows no widget.

    Inputs are set by anybody; the answers, from `tables` on, are set only here.
    """

    root = Unicode("", help="The folder to look for tables in, or a table")
    name = Unicode("", help="The table to open; empty for none")
    where = Unicode("", help="SQL over partition columns; empty for all files")
    min_file_size = Int(GIB, min=1, help="Files below this size in bytes are rewritten")
    max_file_size = Int(GIB, min=1, help="Bytes that a bin may hold")
    order = Unicode(SIZE, help="In which order files are put into bins")
    budget = Unicode("", help="Bytes that may be rewritten, as a size in words; empty for no limit")
    strategy = Unicode("auto", help="How the plan is run")
    verify = Bool(True, help="Whether the content is compared after a run")

    tables = List(Unicode(), help="The tables found under the root")
    table = AnyTrait(None, help="The open Table, or None")
    files = AnyTrait(None, help="The Files that are planned, or None")
    plan = AnyTrait(None, help="The CompactionPlan for the thresholds, or None")
    result = AnyTrait(None, help="The CompactionResult of the last run, or None")
    survey = AnyTrait(None, help="The Survey of the tables found, or None")
    error = Unicode("", help="Why there is no table, or no plan, in one sentence")

    def __init__(self, root: str | Path = ""):
        super().__init__()
        self.loading = Job()
        self.running = Job()
        self.making = Job()
        self.surveying = Job()
        self._planner: Any = None
        # A table that was read is planned by its job, and a slider may be moved meanwhile.
        self._planning = threading.RLock()
        self.root = str(root)

    @observe("root")
    def _find(self, _: object = None) -> None:
        self.survey = None
        self.surveying.cancel()
        self.tables = find_tables(self.root) if self.root else []
        # What is no folder may still be a table's name in the catalog, or a mistake worth a sentence.
        self.name = self.tables[0] if self.tables else ("" if Path(self.root).is_dir() else self.root)

    @observe("name")
    def _open(self, _: object = None) -> None:
        self.table = self.files = self.plan = self.result = self._planner = None
        self.running.reset()
        self.error = ""
        if not self.name:
            return
        try:
            table = open_table(self.name)
            thresholds = table.thresholds()
        except CompactionKitError as error:
            self.error = str(error)
            return
        self.where, self.order, self.budget = "", SIZE, ""
        self.min_file_size, self.max_file_size = thresholds.min_file_size, thresholds.max_file_size
        self.table = table
        self.reload()

    @observe("where", "order")
    def _select(self, _: object = None) -> None:
        if self.table is not None:
            self.reload()

    @observe("min_file_size", "max_file_size", "budget")
    def _on_threshold(self, _: object) -> None:
        with _garbage_later():
            self._replan()

    def _replan(self) -> None:
        with self._planning:
            self._plan()

    def _plan(self) -> None:
        planner, table = self._planner, self.table
        if planner is None or table is None:
            return
        thresholds = replace(
            table.thresholds(),
            min_file_size=min(self.min_file_size, self.max_file_size),
            max_file_size=self.max_file_size,
        )
        try:
            plan = planner.plan(
                thresholds,
                self.where or None,
                table.runner,
                order=self.order,
                budget=parse_size(self.budget, "budget") if self.budget else None,
            )
        except CompactionKitError as error:
            self.plan, self.error = None, str(error)
        else:
            self.plan, self.error = plan, ""

    def reload(self) -> None:
        """Read the table again, in the background, and plan it."""
        table, where = self.table, self.where or None
        if table is not None:
            self.loading.start_next(lambda job: self._load(table, where))

    def _load(self, table: Table, where: str | None) -> None:
        self._planner = None
        try:
            files = table.files(where=where)
            if table is self.table:
                self.files = files
            planner = table.planner(where).prepared()
        except CompactionKitError as error:
            self.plan, self.error = None, str(error)
            return
        if table is self.table:
            self._planner = planner
            self._replan()

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
        """Run the plan in the background; says whether it began."""
        plan = self.plan
        if plan is None or plan.is_empty:
            return False
        return self.running.start(lambda job: self._run(plan, job))

    def _run(self, plan: Any, job: Job) -> Any:
        self.result = None
        try:
            result = plan.run(strategy=self.strategy, verify=self.verify, progress=_reporter(job))
        finally:
            # Whatever happened, the table may have moved on.
            self.reload()
        self.result = result
        self.survey = None
        return result

    def make_flights(self) -> None:
        """Ingest the flights under the root, in the background, and open them."""

        def work(job: Job) -> None:
            from compaction_kit import datasets

            job.report(0.0, "Ingesting a year of flights, a commit a day")
            datasets.flights(Path(self.root) / "flights")
            self._find()

        self.making.start(work)


@contextlib.contextmanager
def _garbage_later() -> Iterator[None]:
    """Have what is drawn meanwhile collected at once, when it is done.

    A figure leaves some 100,000 objects behind. Left to Python, every eighth move of a slider waits
    until those of all eight are collected.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
            gc.collect(0)


def _reporter(job: Job) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        left = progress.seconds_left
        time = f", about {left:.0f} s left" if left is not None and progress.fraction < 1 else ""
        job.report(progress.fraction, f"{progress} ({progress.seconds:.0f} s{time})")

    return report

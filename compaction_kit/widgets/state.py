"""The state of the workbench, which every view observes; independent of widgets."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from traitlets import Bool, Int, List, Unicode, observe

from compaction_kit import datasets
from compaction_kit.active import active_spark
from compaction_kit.compaction import CompactionPlan
from compaction_kit.discovery import Discovered, look_for_tables
from compaction_kit.errors import TableNotFoundError, shortened
from compaction_kit.execute import Progress
from compaction_kit.folder import explain_skipped
from compaction_kit.plan.order import SIZE
from compaction_kit.sql import name_parts
from compaction_kit.storage import is_folder, local_path
from compaction_kit.surveys import Survey, survey
from compaction_kit.table import Table, open_table
from compaction_kit.text import GIB, format_count, format_size
from compaction_kit.verdict import Verdict
from compaction_kit.widgets.changes import Changes, Inputs, Opened
from compaction_kit.widgets.job import Job, attempt, sentence_of

_LONGEST_WHERE = 40


def root_name(root: str | Path | Table) -> str:
    """Return the name of a folder, schema or table as text."""
    return root.name if isinstance(root, Table) else str(root)


class WorkbenchState(Changes):
    """The open table, the chosen inputs, and the running jobs.

    Any code may set the inputs; only this module sets `tables`, `skipped`, `opened` and `about`.
    """

    root = Unicode("", help="The folder, schema or catalog to look for tables in, or a table")
    where = Unicode("", help="SQL condition on partition columns; empty for all files")
    # None if the typed text is not a size; then there is no plan.
    min_file_size = Int(GIB, min=1, allow_none=True, help="Files below this size in bytes are rewritten")
    max_file_size = Int(GIB, min=1, allow_none=True, help="The target file size in bytes")
    by_output = Bool(True, help="Whether that is the size of new files, or of a bin, as for OPTIMIZE")
    order = Unicode(SIZE, help="In which order files are put into bins")
    budget = Unicode("", help='Bytes that may be rewritten, such as "10 GiB"; empty for no limit')
    full = Bool(False, help="Whether a clustered table's files of other columns are clustered again")
    strategy = Unicode("auto", help="How the plan is run")
    verify = Bool(True, help="Whether the content is compared after a run")
    compared = List(Int(), help="The versions that History compares, if they are two")
    stream = Unicode("", help="The sink log to read, as sink_log() takes it; empty for none")
    ahead = Int(100, min=1, help="Batches to look ahead")

    tables = List(Unicode(), help="The tables found under the root")
    skipped = Unicode("", help="Which folders under the root can't be read, in one sentence")
    about = Unicode("", help="The version and the files that are planned, in one line")

    def __init__(self, root: str | Path | Table = "", table: Table | None = None):
        """Open a table, or the table under the root that gains the most from compaction."""
        super().__init__()
        # The minimum as it was chosen, and how many reads of the table were requested.
        self._chosen_min, self._num_reads = self.min_file_size, 0
        self._given = table
        self.root = root_name(root)
        if table is not None:
            self.name = table.name

    @property
    def input_error(self) -> str:
        """Why there is no plan for the inputs, although the table can be planned."""
        return self.opened.error if self.opened.table_plan is not None else ""

    @property
    def inputs(self) -> Inputs:
        """The current inputs for a plan."""
        sizes = self.min_file_size, self.max_file_size
        return self.name, self.where, *sizes, self.order, self.budget, self.full, self.by_output

    @property
    def can_run(self) -> bool:
        """Whether there is a plan to run for the table and the inputs on screen."""
        is_settled = not self.opened.pending and self.opened.inputs == self.inputs
        return self.plan is not None and not self.plan.is_empty and is_settled

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the open table, independent of the plan's inputs; None while it is unknown."""
        opened, error = self.opened, "" if self.input_error else self.opened.error
        return Verdict.of(opened.files, opened.table_plan, error, self.result, self.reads)

    @observe("root")
    def _on_root(self, _: object) -> None:
        self.stream = ""
        self._find()

    def _find(self, again: bool = False) -> None:
        """Look for tables, and open the worst one; with `again`, read the open table again."""
        self.forget("root")
        if "://" not in (root := self.root):
            self.tables = []
            self._on_found(*attempt(lambda: look_for_tables(root) if root else None), again)
            return

        def look(job: Job) -> None:
            job.report(0.0, f"Looking for tables under {root} …")
            found = attempt(lambda: look_for_tables(root))
            with self.changing:
                # This raises an error if another root was named meanwhile.
                job.report(1.0, job.message)
                self._on_found(*found, again)

        with self.changing:
            # In the background, because an unreachable store takes half a minute to fail.
            self.searching.ask(look, root)
            self.tables, self.name = [], self.name if again else ""

    def _on_found(self, found: Discovered | None, error: str, again: bool) -> None:
        self.skipped = explain_skipped(found.skipped) if found else ""
        self.tables = [name for name, _ in found.tables] if found else []
        # A name that is not a folder may be a table in the catalog, or a mistake that is explained.
        is_name = found is not None and not self.tables and not is_folder(self.root)
        name = self.tables[0] if len(self.tables) == 1 else self.root if is_name else ""
        stays = again and self.name not in ("", self.root)
        if error and not stays:
            self.name, self.opened = "", Opened(error=error)
        elif again and self.table is not None:
            self.reload()
        elif stays or name == self.name:
            self._open()
        else:
            self.name = name
        if not self.name and self.tables:
            self.opened = Opened(pending=True)
            self.survey()

    def survey(self) -> None:
        """Rank the tables in the background, and open the first one unless a table is open by then."""
        tables = self.tables

        def look(job: Job) -> Survey:
            def report(done: int, total: int, _: str) -> None:
                job.report(done / total, f"Surveyed {done} of {format_count(total, 'table')}")

            worst = tables[0]
            try:
                found = survey(tables, progress=report)
                worst = found.rows["table"][0].as_py()
                return found
            finally:
                with self.changing:
                    # If tables were searched again meanwhile, another survey opens one.
                    if not self.name and self.tables is tables:
                        self.name = worst

        if tables:
            self.surveying.ask(look, "\n".join(tables))

    @observe("name")
    def _open(self, _: object = None) -> None:
        with self.changing:
            # From here on nothing of the previous table can be run, even if something fails below.
            self.opened, self.about, self.query = Opened(pending=bool(self.name)), "", ""
            self.compared = []
            # A job that ended while another table was open is shown when its own table is opened again.
            for job in (self.running, self.vacuuming, self.restoring):
                if job.about != self.name:
                    job.forget()
            if not self.name:
                return
            self._num_reads += 1
            read = partial(self._read_table, self.name, self._num_reads)
            if "://" in self.name:
                # In the background, because an unreachable store takes long to fail.
                self.loading.start_next(read)
            else:
                read()

    def _read_table(self, name: str, number: int, _: Job | None = None) -> None:
        """Open a table, and begin to read its files."""
        failure, given = None, self._given
        try:
            table = given if given is not None and given.name == name else open_table(name)
            thresholds = table.thresholds()
        except Exception as error:
            failure = error
        with self.changing:
            if number != self._num_reads:
                return
            if failure is not None:
                # A folder that does not exist yet is not a mistake.
                missing = isinstance(failure, TableNotFoundError)
                is_new = missing and name == self.root and not self.tables
                self.opened = Opened(error="" if is_new else sentence_of(failure))
                return
            self.where, self.order, self.budget, self.full = "", SIZE, "", False
            self.retention, self.keep, self.days = "", "", 0
            self.max_file_size, self.min_file_size = thresholds.max_file_size, thresholds.min_file_size
            self.opened = Opened(table)
            self.reload()

    @observe("min_file_size", "max_file_size", "budget", "full", "by_output")
    def _on_threshold(self, change: Any) -> None:
        with self.changing:
            if change.name == "min_file_size":
                self._chosen_min = self.min_file_size
            elif change.name in ("max_file_size", "by_output"):
                self._lower_minimum()
            opened = self.opened
            if opened.planner is not None and not opened.pending and opened.inputs != self.inputs:
                self.opened = opened.planned(self.inputs)

    def _lower_minimum(self) -> None:
        # As in `Table.plan_compaction`, the minimum is at most the maximum, or half of the size of new files.
        # In another order than "size", this size also fills bins.
        chosen, most = self._chosen_min, self.max_file_size
        if not chosen or not most or self.table is None:
            return
        if self.order != SIZE or (self.by_output and most != self.table.thresholds().max_file_size):
            most = max(most // 2, 1)
        self.min_file_size = min(chosen, most)
        self._chosen_min = chosen

    @observe("where", "order")
    def reload(self, change: Any = None) -> None:
        """Read the table again, in the background, and plan it."""
        with self.changing:
            if self.table is None:
                return
            self._num_reads += 1
            self.opened = replace(self.opened, pending=True)
            if change is not None and change.name == "order":
                self._lower_minimum()
            self.loading.start_next(partial(self._load, self.table, self.where, self._num_reads))

    def _load(self, table: Table, where: str, number: int, job: Job) -> None:
        # If reading fails, the previous files stay on screen.
        read = Opened(table, self.opened.where, self.files)
        try:
            files = table.files()
            if not where:
                read = Opened(table, where, files)
                if self.files is None:
                    # The files of a newly opened table are shown before the plan is made.
                    self._show(replace(read, pending=True), number)
            table_plan = self.opened.table_plan
            if not where or table_plan is None or table_plan.source.snapshot is not files.snapshot:
                planner = table.planner().prepared()
                table_plan = CompactionPlan.of(planner, table.thresholds(), handle=table.handle)
            # If the predicate is refused, all current files are shown.
            read = replace(read, where="", files=files, table_plan=table_plan)
            planner = table.planner(where).prepared() if where else table_plan.planner
            # Without commits by others meanwhile, these are the same files, which are drawn already.
            is_same = not where and planner.files.snapshot is files.snapshot
            read = replace(read, where=where, files=files if is_same else planner.files, planner=planner)
        except Exception as error:
            # Nothing of a deleted table stays on screen.
            known = Opened(table) if isinstance(error, TableNotFoundError) else read
            read = replace(known, error=sentence_of(error))
        read = read.planned(self.inputs)
        # The cost may read some files, which takes too long during drawing.
        attempt(lambda: read.plan and read.plan.cost)
        self._show(read, number)

    def _show(self, read: Opened, number: int) -> None:
        with self.changing:
            if read.table is not self.table or number != self._num_reads:
                return
            files = read.files
            if files is None:
                self.about = ""
            elif files is not self.files:
                scope = f" where {shortened(read.where, _LONGEST_WHERE)}" if read.where else ""
                split = format_count(files.stats().num_partitions, "partition")
                partitions = split if files.partition_columns else "not partitioned"
                count, size = f"{format_count(files.num_files, 'file')}{scope}", format_size(files.size_bytes)
                self.about = f"version {files.version} · {count} · {size} · {partitions}"
            self.opened = read if read.pending or read.inputs == self.inputs else read.planned(self.inputs)

    def reload_if_changed(self) -> None:
        """Read the table again, in the background, if others have committed to it or put it back."""

        def work(_: Job) -> None:
            table, files = self.opened.table, self.opened.files
            if table is None or self.opened.pending:
                return
            latest = attempt(table.log.segment)[0]
            if self.opened.planner is None or files is None or files.snapshot.segment != latest:
                self.reload()

        with self.changing:
            if self.table is not None and not self.opened.pending:
                self.loading.start_next(work)

    def refresh(self) -> None:
        """Look again for tables and logs, and read the open table again."""
        self._find(again=True)

    def meet_session(self) -> None:
        """Look for a root that is not a folder in a session that has started."""
        asks = name_parts(self.root) and active_spark() is not None and not is_folder(self.root)
        if self.table is None and asks:
            self.refresh()
        with self.changing:
            # The predicted cost changes, because a run doesn't have to start a session any more.
            self.opened = replace(self.opened)

    def make_flights(self) -> None:
        """Ingest the flights under the root, in the background, and open them."""
        root = self.root

        def work(job: Job) -> None:
            def report(commits: int = 0) -> None:
                job.report(commits / 365, f"Ingesting a year of flights, a commit a day: {commits} of 365")

            report()
            datasets.flights(local_path(root) / "flights", report)
            if root == self.root:
                self._find()

        self.making.start(work)

    def run(self) -> bool:
        """Run the plan on screen in the background; returns whether the run began."""
        with self.changing:
            plan = self.plan if self.can_run else None
        if plan is not None:
            self.measuring.forget()
        job = self.running

        def report(done: Progress) -> None:
            # Before 2 %, the pace is unknown.
            rest = done.seconds * (1 / done.fraction - 1) if done.fraction >= 0.02 else 0
            left = f", about {rest:.0f} s left" if rest else ""
            job.report(done.fraction, f"{done} ({done.seconds:.0f} s{left})")

        return self.carry_out(job, plan, report, strategy=self.strategy, verify=self.verify)

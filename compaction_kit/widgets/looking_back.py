"""What the history and the vacuum of the open table are, for the views that look back."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from traitlets import Any as AnyTrait
from traitlets import HasTraits, Int, Unicode, observe

from compaction_kit.errors import CompactionKitError, InvalidArgumentError
from compaction_kit.widgets.job import Job
from compaction_kit.widgets.state import WorkbenchState


class HistoryState(HasTraits):
    """The versions of the open table; `version` is set by anybody, the answers only here."""

    version = Int(0, help="The version looked at")
    versions = AnyTrait(None, help="What Table.versions() returns, or None")
    ledger = AnyTrait(None, help="What Table.history() returns, or None")
    lives = AnyTrait(None, help="The files' lifetimes, as the log has them, or None")
    diff = AnyTrait(None, help="The Diff from the version looked at to the latest, or None")
    error = Unicode("", help="Why the version can't be looked at, in one sentence")

    def __init__(self, bench: WorkbenchState):
        super().__init__()
        self.bench = bench
        self.reading = Job()
        bench.observe(self._forget, ["table", "files"])

    def _forget(self, _: object = None) -> None:
        self.versions = self.ledger = self.lives = self.diff = None
        self.error = ""

    def read(self) -> None:
        """Read the history, in the background, unless that has been done."""
        table = self.bench.table
        if self.versions is None and table is not None:
            self.reading.start_next(lambda job: self._read(table))

    def _read(self, table: Any) -> None:
        if self.versions is not None:
            return
        ledger, (_, lives), versions = table.history(), table.log.lifetimes(), table.versions()
        if table is not self.bench.table:
            return
        self.ledger, self.lives = ledger, lives
        self.version = versions["version"][-1].as_py()
        self.versions = versions
        self._compare()

    @observe("version")
    def _compare(self, _: object = None) -> None:
        table = self.bench.table
        if self.versions is None or table is None:
            return
        latest = self.versions["version"][-1].as_py()
        try:
            self.diff, self.error = table.diff(self.version, latest), ""
        except CompactionKitError as error:
            self.diff, self.error = None, str(error)

    def row(self) -> dict[str, Any]:
        """What `versions` has of the version looked at."""
        position = int(self.versions["version"].index(pa.scalar(self.version, pa.int64())).as_py())
        row: dict[str, Any] = self.versions.slice(position, 1).to_pylist()[0]
        return row


class VacuumState(HasTraits):
    """A vacuum of the open table; `retention`, `keep` and `days` are set by anybody."""

    retention = Unicode(
        "", help='How long removed files are kept, such as "7 days"; empty: as the table is set'
    )
    keep = Unicode("", help="Versions that must stay readable, such as 3, 7; empty for none")
    days = Int(0, min=0, help="In how many days it would run; 0 for now")
    plan = AnyTrait(None, help="The VacuumPlan, or None")
    result = AnyTrait(None, help="The VacuumResult of the last run, or None")
    error = Unicode("", help="Why there is no plan, in one sentence")

    def __init__(self, bench: WorkbenchState):
        super().__init__()
        self.bench = bench
        self.planning = Job()
        self.running = Job()
        bench.observe(self._forget, ["table", "files"])

    def _forget(self, change: Any = None) -> None:
        self.plan = None
        if change is None or change.name == "table":
            self.result, self.error = None, ""
            self.running.reset()

    @observe("retention", "keep", "days")
    def _replan(self, _: object = None) -> None:
        self.look()

    def look(self) -> None:
        """Plan, in the background."""
        table = self.bench.table
        if table is not None:
            self.planning.start_next(lambda job: self._look(table))

    def _look(self, table: Any) -> None:
        plan, error = None, ""
        try:
            plan = self._plan(table)
        except CompactionKitError as wrong:
            error = str(wrong)
        if table is self.bench.table:
            self.plan, self.error = plan, error

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
        plan = self.plan
        if plan is None or plan.is_empty or self.days or typed != self.password:
            return False
        return self.running.start(lambda job: self._run(plan, job))

    def _run(self, plan: Any, job: Job) -> None:
        def report(progress: Any) -> None:
            job.report(progress.fraction, str(progress))

        try:
            self.result = plan.run(progress=report)
        finally:
            self.bench.reload()

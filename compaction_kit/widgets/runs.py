"""Runs of plans, one at a time: what compactions, vacuums and restores have in common on a page."""

from collections.abc import Callable
from typing import Any, Protocol

from traitlets import Any as AnyTrait
from traitlets import Unicode

from compaction_kit.errors import StalePlanError
from compaction_kit.table import Table
from compaction_kit.widgets.job import Job, Watched


class Bench(Protocol):
    """What has an open table, and reads it again."""

    @property
    def table(self) -> Table | None:
        """The open table, or None."""

    def reload(self) -> None:
        """Read the table again."""


class Runs(Watched):
    """Runs of plans, one at a time, in the background."""

    result = AnyTrait(None, help="The result of the last run, or None")
    ran = Unicode("", help="The table of the last run, or of the one that is under way")

    def __init__(self) -> None:
        super().__init__()
        self.running = Job()

    def forget_run(self) -> None:
        """Forget the last run; one that is under way goes on."""
        self.result = None
        self.ran = self.ran if self.running.running else ""
        self.running.reset()

    def of_another_table(self, name: str) -> str:
        """What to say above a run if it is of another table than the one of this name."""
        is_other = self.ran not in ("", name)
        return f"What follows is of {self.ran}, which was open when it began." if is_other else ""

    def start_run(self, bench: "Bench", table: Table, run: Callable[[Job], Any]) -> bool:
        """Run a plan of a table, and read the table again if it is still open; returns whether it began."""

        def work(job: Job) -> None:
            self.result = None
            self.ran = table.name
            try:
                result = run(job)
            finally:
                # After a failure too: other writers may have committed meanwhile.
                if table is bench.table:
                    bench.reload()
            self.result = result

        return self.running.start(work)

    def refuse(self, sentence: str) -> bool:
        """Say in the run's place why nothing is run; returns whether it could be said."""

        def work(_: Job) -> None:
            raise StalePlanError(sentence)

        return self.running.start(work)

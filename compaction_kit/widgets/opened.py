"""An open table and the plan for it, as one record: it is shown, run and reported as a whole."""

from dataclasses import dataclass, replace
from functools import partial

from compaction_kit.compaction import CompactionPlan
from compaction_kit.errors import CompactionKitError, InvalidArgumentError
from compaction_kit.files import Files
from compaction_kit.plan import Planner
from compaction_kit.table import Table
from compaction_kit.text import parse_size
from compaction_kit.widgets.job import attempt


@dataclass(frozen=True)
class Inputs:
    """What a plan is made for; a size is None where what is typed is no size."""

    name: str
    where: str
    min_file_size: int | None
    max_file_size: int | None
    order: str
    budget: str


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
        """The same with the plan for the inputs, or with the reason why there is none."""
        if self.planner is None or self.table is None:
            return replace(self, inputs=inputs)
        plan, error = attempt(partial(_plan, self.planner, self.table, inputs))
        return replace(self, inputs=inputs, plan=plan, error=error)


def _plan(planner: Planner, table: Table, inputs: Inputs) -> CompactionPlan:
    if inputs.min_file_size is None or inputs.max_file_size is None:
        raise InvalidArgumentError("There is no plan, because a file size can't be read: correct it.")
    sizes = {"min_file_size": inputs.min_file_size, "max_file_size": inputs.max_file_size}
    thresholds = replace(table.thresholds(), **sizes)
    budget = parse_size(inputs.budget, "budget") if inputs.budget else None
    return CompactionPlan.of(
        planner, thresholds, inputs.where or None, inputs.order, budget, handle=table.handle
    )

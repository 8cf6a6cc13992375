"""An open table with its files and the plan for them."""

from dataclasses import dataclass, replace
from functools import partial

from compaction_kit.compaction import CompactionPlan
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.files import Files
from compaction_kit.plan import Planner
from compaction_kit.table import Table
from compaction_kit.text import parse_size
from compaction_kit.widgets.job import attempt

# The name, the predicate, the least and the largest size, the order, the budget, `full` and `by_output`.
Inputs = tuple[str, str, int | None, int | None, str, str, bool, bool]


@dataclass(frozen=True, eq=False)
class Opened:
    """A table with its files and the plan for them, which belong together; replaced as a whole.

    `files` are those that `where` selects; `plan` is the plan for `inputs` that `planner` makes of them, and
    `table_plan` the one for the whole table with its own target size. While `pending`, the table is read
    again; `error` says in one sentence why there is no table or no plan.
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
        """Return the same with the plan for the inputs, or with the reason why there is none."""
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

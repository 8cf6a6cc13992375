"""Plan VACUUM: the files that it would delete and the versions that this makes unreadable; and run it."""

from compaction_kit.vacuum.cost import Stream, running_streams
from compaction_kit.vacuum.plan import VacuumPlan, plan_vacuum
from compaction_kit.vacuum.result import VacuumResult
from compaction_kit.vacuum.run import VacuumProgress, run_vacuum

__all__ = [
    "Stream",
    "VacuumPlan",
    "VacuumProgress",
    "VacuumResult",
    "plan_vacuum",
    "run_vacuum",
    "running_streams",
]

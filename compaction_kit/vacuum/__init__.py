"""What VACUUM would take, which versions that costs, and a vacuum of just that."""

from compaction_kit.vacuum.plan import VacuumPlan
from compaction_kit.vacuum.planner import Session, plan_vacuum
from compaction_kit.vacuum.progress import VacuumProgress
from compaction_kit.vacuum.result import VacuumResult
from compaction_kit.vacuum.run import run_vacuum
from compaction_kit.vacuum.streams import Stream, running_streams

__all__ = [
    "Session",
    "Stream",
    "VacuumPlan",
    "VacuumProgress",
    "VacuumResult",
    "plan_vacuum",
    "run_vacuum",
    "running_streams",
]

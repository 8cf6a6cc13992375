"""Plan VACUUM: the files that it would delete and the versions that this makes unreadable; and run it."""

from compaction_kit.vacuum.plan import VacuumPlan, plan_vacuum
from compaction_kit.vacuum.run import VacuumResult

__all__ = ["VacuumPlan", "VacuumResult", "plan_vacuum"]

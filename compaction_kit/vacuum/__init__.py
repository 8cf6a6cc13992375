"""What VACUUM would take, and which versions that costs."""

from compaction_kit.vacuum.plan import VacuumPlan, plan_vacuum

__all__ = ["VacuumPlan", "plan_vacuum"]

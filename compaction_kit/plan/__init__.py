"""Files in, bins out; no Spark, no I/O."""

from compaction_kit.plan.compaction import CompactionPlan, Planner, Thresholds

__all__ = ["CompactionPlan", "Planner", "Thresholds"]

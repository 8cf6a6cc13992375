"""Files in, bins out; no Spark, no I/O."""

from compaction_kit.plan.candidates import Thresholds
from compaction_kit.plan.compaction import CompactionPlan
from compaction_kit.plan.planner import Planner, SessionRules

__all__ = ["CompactionPlan", "Planner", "SessionRules", "Thresholds"]

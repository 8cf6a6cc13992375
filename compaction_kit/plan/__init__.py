"""Files in, bins out; no Spark, and no data file is read but to predict sizes and to find dropped columns."""

from compaction_kit.plan.plan import BinPlan
from compaction_kit.plan.planner import Planner
from compaction_kit.plan.thresholds import SessionRules, Thresholds

__all__ = ["BinPlan", "Planner", "SessionRules", "Thresholds"]

"""Pack files into bins without Spark; data files are read only to predict sizes and find dropped columns."""

from compaction_kit.plan.plan import BinPlan
from compaction_kit.plan.planner import Planner
from compaction_kit.plan.thresholds import SessionRules, Thresholds

__all__ = ["BinPlan", "Planner", "SessionRules", "Thresholds"]

"""Files in, bins out; no Spark, no I/O except the trial that predicts sizes."""

from compaction_kit.plan.plan import BinPlan
from compaction_kit.plan.planner import Planner
from compaction_kit.plan.thresholds import SessionRules, Thresholds

__all__ = ["BinPlan", "Planner", "SessionRules", "Thresholds"]

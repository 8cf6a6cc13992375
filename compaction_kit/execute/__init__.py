"""Bins in, commit out: one module a strategy, one runner."""

from compaction_kit.execute.result import CompactionResult
from compaction_kit.execute.run import run_plan
from compaction_kit.execute.work import Progress

__all__ = ["CompactionResult", "Progress", "run_plan"]

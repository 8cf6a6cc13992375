"""Bins in, commit out: one module a strategy, one runner."""

from compaction_kit.execute.progress import Progress
from compaction_kit.execute.result import CompactionResult
from compaction_kit.execute.runner import run_plan

__all__ = ["CompactionResult", "Progress", "run_plan"]

"""Run plans: one module per strategy, and one runner for all."""

from compaction_kit.execute.result import CompactionResult
from compaction_kit.execute.run import run_plan
from compaction_kit.execute.work import Progress, ProofReader, Strategy

__all__ = ["CompactionResult", "Progress", "ProofReader", "Strategy", "run_plan"]

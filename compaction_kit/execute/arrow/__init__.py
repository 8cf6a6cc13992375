"""The strategy "arrow": one Spark job whose tasks rewrite bins with pyarrow."""

from compaction_kit.execute.arrow.strategy import run_arrow

__all__ = ["run_arrow"]

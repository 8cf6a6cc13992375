"""The strategy "arrow": one Spark job whose tasks rewrite bins with pyarrow."""

from compaction_kit.execute.arrow.strategy import NoBinFits, run_arrow

__all__ = ["NoBinFits", "run_arrow"]

"""Plan, run and prove the compaction of Delta Lake tables."""

from compaction_kit.session import get_spark
from compaction_kit.table import Table, open_table

__all__ = ["Table", "get_spark", "open_table"]

"""Into how many files rows are rewritten, and which task writes which of them."""

from dataclasses import dataclass

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from compaction_kit.files import Files
from compaction_kit.plan import BinPlan
from compaction_kit.predicate import partitions_predicate
from compaction_kit.sql import quoted

_SLOT = "__compaction_kit_slot"
# Stretches of rows that go to each output: many, so that outputs are of one size, and long, as
# rows that came together are alike and compress well.
_STRETCHES = 1_000


@dataclass(frozen=True)
class Spread:
    """How many files the rows of each partition become.

    Attributes:
        source: The files considered.
        positions: Those of them that are rewritten: all files of the partitions that have bins.
        counts: How many files the partition of each of these becomes, int64, one a position.
        num_files: How many files come out, in all.
        num_rows: The rows of all, as far as the log says.
    """

    source: Files
    positions: np.ndarray
    counts: np.ndarray
    num_files: int
    num_rows: int

    @classmethod
    def of(cls, plan: BinPlan) -> "Spread":
        """The fewest files that are predicted to stay within the plan's `max_file_size`."""
        positions = whole_partitions(plan)
        groups = np.unique(plan.groups[positions], return_inverse=True)[1]
        limit, model = plan.thresholds.max_file_size, plan.planner.model
        contents = np.bincount(groups, model.weights[positions])
        sizes = np.bincount(groups, plan.source.sizes[positions])
        # Never more files than their bytes as they are would fill: the overhead is a guess.
        counts = np.minimum(np.ceil(contents / max(limit - model.overhead, 1)), np.ceil(sizes / limit))
        counts = np.maximum(counts, 1).astype(np.int64)
        num_rows = int(np.nansum(plan.planner.rows[positions]))
        return cls(plan.source, positions, counts[groups], int(counts.sum()), num_rows)

    def apply(self, rows: DataFrame, num_tasks: int) -> DataFrame:
        """The same rows, so distributed over tasks that each writes one file of a partition.

        Args:
            rows: Rows of the partitions in question; of others, each partition becomes one file.
            num_tasks: At least as many as a partition becomes files.
        """
        # Not Spark's repartition(n): that sorts all rows, and strews those that came together.
        part = self._part(rows.sparkSession)
        columns = [F.col(quoted(name)) for name in self.source.partition_columns]
        tasks = F.lit(num_tasks)
        slot = F.pmod(F.pmod(F.hash(*columns), tasks) + part, tasks) if columns else part
        slotted = rows.select("*", slot.cast("int").alias(_SLOT))
        if hasattr(slotted, "repartitionById"):
            return slotted.repartitionById(num_tasks, _SLOT).drop(_SLOT)
        # Before Spark 4.1: two slots may meet in one task, which then writes one file of both.
        return slotted.repartition(num_tasks, _SLOT).drop(_SLOT)

    def _part(self, spark: SparkSession) -> Column:
        """Which of its partition's files each row goes to."""
        stretch = max(self.num_rows // (self.num_files * _STRETCHES), 1)
        turn = F.expr(f"monotonically_increasing_id() div {stretch}")
        if not self.source.partition_columns:
            return F.pmod(turn, F.lit(int(self.counts[0])))
        part = F.lit(0)
        for count in np.unique(self.counts[self.counts > 1]).tolist():
            members = partitions_predicate(spark, self.source, self.positions[self.counts == count])
            part = F.when(F.expr(members), F.pmod(turn, F.lit(count))).otherwise(part)
        return part


def whole_partitions(plan: BinPlan) -> np.ndarray:
    """The files of all partitions in which a plan has bins: their positions among those considered."""
    positions: np.ndarray = np.flatnonzero(np.isin(plan.groups, np.unique(plan.groups[plan.members[0]])))
    return positions

"""A planned compaction, which explains, draws and runs itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit import plots
from compaction_kit.arrow.duckdb import compare_quickly
from compaction_kit.arrow.strategy import Arrow
from compaction_kit.cost import Cost, cost_of, learn
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.execute import CompactionResult, run_plan
from compaction_kit.execute.optimize import Optimize, Reorg
from compaction_kit.execute.rewrite import Rewrite
from compaction_kit.handle import Handle
from compaction_kit.history import read_log_expiry
from compaction_kit.log.listing import Kind
from compaction_kit.plan.clustering import amplify
from compaction_kit.plan.compare import Comparison, compare
from compaction_kit.plan.explain import Exactness, bin_limit, bin_names, exactness, explain, metrics
from compaction_kit.plan.plan import BinPlan
from compaction_kit.predict_reads import ReadPrediction, predict_reads
from compaction_kit.query import Query
from compaction_kit.records import plain
from compaction_kit.retention import LOG_PROPERTY
from compaction_kit.text import format_count, format_size, joined_lines, parse_count, parse_size

# "auto" tries them in this order; bins that one leaves alone go to the next one.
STRATEGIES = (Arrow(), Optimize(), Rewrite())
PROOF_READERS = (compare_quickly,)
_STORED = (
    *("version", "where", "order", "budget", "zorder_by", "full", "thresholds", "warnings", "size_basis"),
    *("num_files_removed", "num_files_added", "bytes_removed", "bytes_added", "bins", "files"),
)


@dataclass(frozen=True, repr=False)
class CompactionPlan(BinPlan):
    """A plan that explains, draws and runs itself; made by `Table.plan_compaction` and `Table.plan_purge`.

    It changes nothing until `run()` is called. See `BinPlan` for its counts and tables.

    Attributes:
        handle: The table.
    """

    handle: Handle = field(kw_only=True, repr=False, compare=False)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings to read before the plan is run, one sentence each; also in `explain()`."""
        sentences, limits = list[str](), self.thresholds
        lower, upper = limits.min_file_size, limits.target_file_size
        if lower > upper and not self.sorts_rows:
            sentences.append(
                f"The minimum file size of {format_size(lower)} is above the target file size of "
                f"{format_size(upper)}, so each run selects the files that the last one added, and rewrites "
                "those that fit into one bin: lower the minimum or raise the target."
            )
        if not self.is_empty and (risk := self.handle.commit_risk):
            sentences.append(risk)
        if not self.is_empty and (checkpoint := self._cleans_log_at):
            sentences.append(
                f"The run can't be undone: with the checkpoint of version {checkpoint} Delta deletes all "
                f"earlier commits, because they are older than {LOG_PROPERTY}. To keep version "
                f"{self.version}, set this property to a longer time first."
            )
        return tuple(sentences)

    @cached_property
    def _cleans_log_at(self) -> int | None:
        """The run's version that makes the planned version unreadable; None if it stays readable."""
        properties = self.source.snapshot.metadata.configuration
        text = properties.get("delta.checkpointInterval", "10")
        interval = int(text) if text.isdecimal() else 0
        checkpoint = (self.version // interval + 1) * interval if interval else 0
        is_kept = properties.get("delta.enableExpiredLogCleanup", "true").lower() == "false"
        # Delta deletes all commits before a checkpoint at once, and none if the run has made the last one.
        if checkpoint != self.version + 1 or is_kept:
            return None
        log = read_log_expiry(self.handle)
        latest = (pc.field("version") == self.version) & (pc.field("kind") == Kind.COMMIT.value)
        expires = log.filter(latest)["expires"].to_pylist()
        return checkpoint if expires and expires[0] <= datetime.now(UTC) else None

    @property
    def metrics(self) -> dict[str, Any]:
        """OPTIMIZE's predicted result row, as far as it can be known before the run."""
        return metrics(self)

    @property
    def exact(self) -> Exactness:
        """Which parts of the plan are certain."""
        return exactness(self)

    def explain(self) -> str:
        """Say what the plan does and why, in a few sentences."""
        return joined_lines((*explain(self), *self.warnings))

    summary = explain

    @property
    def cost(self) -> Cost:
        """The cost of a run by "auto" now, predicted from the last runs on this machine.

        Without such runs, some files are read and written in memory, for a second; Spark isn't started.
        """
        return cost_of(self.handle, self)

    def compare(self, column: str | None = None) -> Comparison:
        """Compare the table's layout now, after OPTIMIZE, and after each order; see `compare.compare`."""
        return compare(self, column)

    def predict_reads(
        self, query: Query, progress: Callable[[float, str], object] | None = None
    ) -> ReadPrediction:
        """Count the files that a query opens now, and after this and other plans; see `predict_reads`.

        Examples:
            >>> plan = ck.open_table("data/flights").plan_compaction()
            >>> plan.predict_reads("month = 6").layouts.to_pylist()[0]
            {'layout': 'now', 'num_files': 1095, 'files_opened': 90, 'bytes_opened': ...}
        """
        return predict_reads(self, self.handle, query, progress)

    def amplification(
        self, append_bytes: int | str, times: int = 10, min_cube_size: int | str | None = None
    ) -> pa.Table:
        """Compute the cost of more appends to a clustered table if OPTIMIZE runs after each; changes nothing.

        The first append comes after this plan has run. OPTIMIZE's own rule selects files by their sizes
        (ClusteringStrategy.applyMinZCube). The sizes of the files that it writes are predicted
        (`size_basis`), so `bytes_rewritten` is as exact as these, and a cube near the limit may be complete
        one append earlier or later. New files have the plan's target size.

        Args:
            append_bytes: Bytes of the files that each append adds, or text such as "1 GiB".
            times: How many appends.
            min_cube_size: The size from which cubes are complete and left alone; None: as in the session
                (spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.threshold).

        Returns:
            One row per append with its OPTIMIZE, int64. Columns: append (from 1), bytes_appended,
            bytes_rewritten (of the files that OPTIMIZE removes), num_complete_cubes and num_partial_cubes
            (after OPTIMIZE; without cubes of other clustering columns).

        Raises:
            InvalidArgumentError: The table isn't clustered, or a size can't be used.
        """
        if self.planner.clustering is None:
            raise InvalidArgumentError("amplification() needs cubes, and this table isn't clustered.")
        files, size = self.planner.clustering.cubed, parse_size(append_bytes, "append_bytes")
        if min_cube_size is not None:
            least = parse_size(min_cube_size, "min_cube_size")
            files = replace(files, limits=replace(files.limits, complete=least))
        written = self.thresholds.max_file_size, self.planner.model.overhead
        files = files.clustered(self.packing, *written)
        return amplify(files, size, parse_count(times, "times"), *written)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values: its inputs, warnings, sums, bins and files."""
        return {name: plain(getattr(self, name)) for name in _STORED}

    def run(
        self,
        strategy: str = "auto",
        verify: bool = True,
        progress: bool | Callable[[Any], None] | None = None,
    ) -> CompactionResult:
        """Compact the table as planned.

        The strategy "arrow" compares the content before it commits. OPTIMIZE and an overwrite are compared
        after their commit, which is undone by RESTORE if the content differs, can't be read, or the
        comparison is cancelled. If that is impossible (the session died, another writer has committed since),
        the commit stays and the error says that it isn't proved.

        Args:
            strategy: "arrow" rewrites bins with pyarrow, in a Spark job for each commit by Delta; only it
                runs other orders and budgets, and OPTIMIZE gets bins that it can't rewrite. "optimize" is
                Delta's OPTIMIZE, with the session's other settings. "rewrite" is Delta's overwrite with
                dataChange=false, of the whole partitions in which there are bins. "auto" is arrow if that can
                rewrite the table, else optimize; the result says why. A purge has one strategy, "reorg".
            verify: Compare the rows of the replaced files and of the files that replace them.
            progress: True for a bar, or a callable that takes an `execute.Progress`; an exception that it
                raises cancels the run.

        Returns:
            The result, read from the log.

        Raises:
            InvalidArgumentError: The strategy is unknown or doesn't run such a plan.
            StalePlanError: The plan has been run, another writer has committed since, or the table
                was created again.
            ReadOnlyTableError: The table's folder can't be written to.
            UnsupportedTableError: The strategy can't rewrite the table, or the rest of the plan, faithfully.
            RunFailedError, ConflictError, RunCancelled: A file could not be read or written, other
                writers took the plan's files, or it was cancelled; the message says what is committed.
            VerificationError: The content differs; the message says what became of the commit.
        """
        strategies = (Reorg(),) if self.is_purge else STRATEGIES
        cost = cost_of(self.handle, self, str(strategy), may_read=False)
        result = run_plan(self.handle, self, strategies, PROOF_READERS, strategy, verify, progress)
        return learn(cost, result)

    def plot(self) -> "plots.Chart":
        """Draw the sizes now and as predicted on one scale, and the bins as packed bars.

        For a clustered table, draw its cubes, and the values of the first clustering column in each file.
        """
        parts: list[plots.Placed] = [(plots.BEFORE_AFTER_HEIGHT, self.plot_sizes)]
        if self.clustered_by:
            parts = [(plots.cubes_height(len(self.cubes)), self.plot_cubes)]
            if column := self.clustering_column:
                parts.append((plots.EXTENTS_HEIGHT, partial(self.source.plot_extents, column)))
        elif self.num_bins:
            parts.append((plots.bins_height(self.num_bins), self.plot_bins))
        return plots.stacked(parts)

    def plot_cubes(self, figure: "plots.Chart | None" = None) -> "plots.Chart":
        """Draw only the cubes of a clustered table, as large as `plot_sizes`."""
        size = plots.SIZES_WIDTH, plots.BEFORE_AFTER_HEIGHT
        figure = figure or plots.Chart(figsize=size, layout="constrained")
        return plots.cubes(self.cubes, self.planner.rules.cubes.complete, figure)

    def plot_sizes(
        self, former: "CompactionPlan | None" = None, figure: "plots.Chart | None" = None
    ) -> "plots.Chart":
        """Draw only the sizes, with the sizes after another plan of the same files as an outline."""
        return plots.before_after(
            self.source.sizes,
            None if self.is_empty else self.sizes_after,
            min_file_size=None if self.clustered_by or self.is_purge else self.thresholds.min_file_size,
            max_file_size=self.thresholds.target_file_size,
            largest=self.planner.largest_bin,
            former=None if former is None else former.sizes_after,
            figure=figure,
        )

    def plot_bins(self, figure: "plots.Chart | None" = None) -> "plots.Chart":
        """Draw only the bins."""
        outputs, limit = self.outcome.bytes_added, self.thresholds.max_file_size
        limit = self.planner.rules.cubes.most if self.clustered_by else limit
        return plots.bins(self.files, outputs, limit, bin_names(self), bin_limit(self), figure=figure)

    def parts(self) -> Sequence[object]:
        """Return the sentences, and the figure."""
        return self.explain(), self.plot()

    def __repr__(self) -> str:
        return (
            f"CompactionPlan(version {self.version}: {format_count(self.num_files_removed, 'file')} in "
            f"{format_count(self.num_bins, 'bin')}, {format_size(self.bytes_removed)})"
        )

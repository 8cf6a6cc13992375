"""The interface of strategies, and the run that they get, with its progress and its timeline."""

import contextlib
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from tqdm.auto import tqdm

from compaction_kit.execute.jobs import WorkCancelled
from compaction_kit.handle import Handle
from compaction_kit.log import TransactionLog
from compaction_kit.log.snapshot import Snapshot
from compaction_kit.plan import BinPlan
from compaction_kit.storage import Store
from compaction_kit.text import format_count, format_size
from compaction_kit.verify import Fingerprint

_TEXT, _INT, _REAL = pa.string(), pa.int64(), pa.float64()
TIMELINE = pa.schema({"step": _TEXT, "label": _TEXT, "bin_id": _INT, "start": _REAL, "seconds": _REAL})
PREPARING, REWRITING, COMPARING = "Preparing", "Rewriting", "Comparing the content"
COMMITTING, DONE = "Committing", "Done"
# The share of a run with proof that rewriting is assumed to take.
_REWRITING_SHARE = 0.6

# Add actions as the log writes them.
Adds = Sequence[Mapping[str, Any]]
Report = Callable[[Any], object]
# Compares the rows of two sets of files of a table, and reports the share that is done. Raises NotCompared if
# it can't compare them, or finds a difference.
ProofReader = Callable[[SparkSession, Snapshot, Adds, Adds, Callable[[float], None]], Fingerprint]


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Attributes:
        step: "Preparing", "Rewriting", "Comparing the content", "Committing" or "Done"; for a vacuum "Delta
            checks the files" or "Deleted 4 of 5 files"; for a restore "Restoring".
        fraction: The share of the whole run that is done, 0 to 1.
        bins_done: Rewritten bins, of `num_bins`; estimated for the strategy "rewrite".
        bytes_done: Bytes of the rewritten bins, of `size_bytes`.
        seconds: Seconds since the run began.
        bytes_compared: Bytes of the files whose content is compared, of `size_bytes`.
    """

    step: str
    fraction: float
    bins_done: int
    num_bins: int
    seconds: float
    bytes_done: int = 0
    size_bytes: int = 0
    bytes_compared: int = 0

    def __str__(self) -> str:
        """Return the step, the bins and the bytes that are done."""
        if self.step in (PREPARING, COMMITTING):
            return self.step
        parts, bytes_done = [self.step], self.bytes_done
        if self.step == COMPARING:
            bytes_done = self.bytes_compared
        elif self.num_bins:
            parts.append(f"{self.bins_done:,} of {format_count(self.num_bins, 'bin')}")
        if self.size_bytes:
            parts.append(f"{format_size(bytes_done)} of {format_size(self.size_bytes)}")
        return ", ".join(parts)


class ProgressBar:
    """A bar in a terminal or a notebook; call it with each progress."""

    def __init__(self) -> None:
        shown = "{desc} |{bar}| {percentage:3.0f} % {elapsed}<{remaining}"
        self._bar: tqdm[None] = tqdm(total=100, miniters=0, bar_format=shown, leave=False)
        self.close = self._bar.close

    def __call__(self, progress: Progress) -> None:
        """Show a progress."""
        self._bar.set_description_str(str(progress), refresh=False)
        self._bar.update(round(100 * progress.fraction) - self._bar.n)


class Recorder:
    """Reports the progress of a run, and records its steps; times are in seconds since 1970."""

    def __init__(self, report: Report, plan: BinPlan, verify: bool):
        self.report, self._plan = report, plan
        self._rewriting_share = _REWRITING_SHARE if verify else 1.0
        self._fraction = 0.0
        self._spans: list[tuple[object, ...]] = []
        self.start, self._began = time.time(), time.monotonic()
        self.bins_done = self.bytes_done = self.bytes_compared = self.peak_bytes = 0
        self.conflicts: list[tuple[float, str]] = []
        self.fingerprint = Fingerprint(0, (0, 0))
        self.proof_reason = ""

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def preparing(self) -> None:
        """Report that nothing is rewritten yet, except for earlier batches."""
        self._tell(REWRITING if self.bytes_done else PREPARING)

    def rewriting(self, bins_done: int, bytes_done: int) -> None:
        """Report the number of bins that are done, and their bytes; neither ever decreases."""
        self.bins_done = min(max(bins_done, self.bins_done), self._plan.num_bins)
        self.bytes_done = min(max(bytes_done, self.bytes_done), self._plan.bytes_removed)
        self._tell(REWRITING)

    def comparing(self, size_bytes: float) -> None:
        """Report how many bytes of the current comparison are done."""
        self._tell(COMPARING, size_bytes)

    def committing(self) -> None:
        """Report that Delta commits."""
        self._tell(COMMITTING)

    def report_or_cancel(self, report: Callable[[], None]) -> None:
        """Report while no Spark work is watched; raise WorkCancelled if the watcher raises."""
        try:
            report()
        except Exception as error:
            raise WorkCancelled from error

    def done(self) -> None:
        """Report the end; exceptions of the watcher are ignored, because it is too late to cancel."""
        self.bins_done, self.bytes_done = self._plan.num_bins, self._plan.bytes_removed
        self._fraction = 1.0
        with contextlib.suppress(Exception):
            self._tell(DONE)

    def conflict(self, error: Exception) -> None:
        """Record a conflict with another writer."""
        self.conflicts.append((time.time(), str(error).splitlines()[0]))

    def span(self, step: str, start: float, end: float, label: str = "", bin_id: int | None = None) -> None:
        """Record when a step began and ended, in seconds since 1970."""
        self._spans.append((step, label, bin_id, start - self.start, end - start))

    @contextlib.contextmanager
    def step(self, name: str, label: str = "") -> Iterator[None]:
        """Record how long a `with` block took."""
        start = time.time()
        try:
            yield
        finally:
            self.span(name, start, time.time(), label)

    def timeline(self) -> pa.Table:
        """Return the steps by their start; see `CompactionResult.timeline` for the columns."""
        rows = [dict(zip(TIMELINE.names, span, strict=True)) for span in self._spans]
        return pa.Table.from_pylist(rows, schema=TIMELINE).sort_by("start")

    def _tell(self, step: str, comparing_bytes: float = 0) -> None:
        plan, size_bytes = self._plan, max(self._plan.bytes_removed, 1)
        compared = min((self.bytes_compared + comparing_bytes) / size_bytes, 1.0)
        share = self._rewriting_share
        fraction = share * self.bytes_done / size_bytes + (1 - share) * compared
        self._fraction = max(self._fraction, min(fraction, 0.99))
        done = self.bins_done, plan.num_bins, self.seconds, self.bytes_done, plan.bytes_removed
        self.report(Progress(step, self._fraction, *done, int(size_bytes * compared)))


@dataclass
class Run:
    """One run of a plan, as strategies get it.

    `partitions` are the numbers of the partitions to rewrite (see `Planner.groups`), None for all; the run's
    commits contain its `id`; `table` is the URI of the table's folder.
    """

    handle: Handle
    plan: BinPlan
    record: Recorder
    verify: bool
    readers: Sequence[ProofReader] = ()
    partitions: frozenset[int] | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    spark: SparkSession = field(init=False)
    table: str = field(init=False)
    store: Store = field(init=False)
    log: TransactionLog = field(init=False)

    def __post_init__(self) -> None:
        handle = self.handle
        self.spark, self.table, self.store, self.log = handle.spark, handle.uri, handle.store, handle.log


class Strategy(ABC):
    """A way to run a plan.

    Attributes:
        name: Its name in `run(strategy=…)`, without a comma or semicolon.
        reason: Text that says why "auto" chose it.
        runs_any_order: Whether it runs plans with an order other than OPTIMIZE's, or a budget.
    """

    name: str
    reason: str
    runs_any_order = False

    def refuse(self, run: Run) -> str | None:
        """Return why it can't run the plan, as the end of a sentence; None if it can."""
        return None

    @abstractmethod
    def run(self, run: Run) -> Mapping[int, str]:
        """Rewrite and commit.

        Returns:
            The numbers of the bins that it can't rewrite, with the reasons. If OPTIMIZE can run the plan, the
            next strategy gets all bins of their partitions, because OPTIMIZE packs whole partitions.
        """

    def is_as_planned(self, plan: BinPlan, removed: set[str], num_added: int) -> bool:
        """Return whether removed paths and the number of added files are those that the plan predicted."""
        return removed == set(plan.files["path"].to_pylist()) and num_added == plan.num_files_added


def no_progress(_: object) -> None:
    """Ignore a progress."""

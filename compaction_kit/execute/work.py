"""What a strategy is given to work with, and how far it is: a record of it, and a bar that shows it."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from tqdm.auto import tqdm

from compaction_kit.execute.jobs import WorkCancelled
from compaction_kit.handle import Handle
from compaction_kit.log import TransactionLog
from compaction_kit.plan import BinPlan
from compaction_kit.storage import Store
from compaction_kit.text import format_count, format_size
from compaction_kit.verify import Fingerprint

TIMELINE = pa.schema(
    [
        ("step", pa.string()),
        ("label", pa.string()),
        ("bin_id", pa.int64()),
        ("start", pa.float64()),
        ("seconds", pa.float64()),
    ]
)
# The steps, as watchers are told.
PREPARING, REWRITING, COMPARING = "Preparing", "Rewriting", "Comparing the content"
COMMITTING, DONE = "Committing", "Done"
# The shares of a run that preparing and committing take, of which nobody knows how long they last.
_PREPARING, _COMMITTING = 0.05, 0.05
# The share of the rest that rewriting takes where content is compared.
_REWRITING = 0.6
# In so many seconds the bar goes half of the way that is left, where there is nothing to count.
_HALF_WAY = 4.0


class Measured:
    """How far anything is: the share of it that is done, 0 to 1, and the seconds since it began."""

    fraction: float
    seconds: float

    @property
    def seconds_left(self) -> float | None:
        """Seconds for the rest at the pace so far; None while the pace isn't known."""
        return None if self.fraction < 0.02 else self.seconds * (1 - self.fraction) / self.fraction


@dataclass(frozen=True)
class Progress(Measured):
    """How far a run is.

    Attributes:
        step: The current step: "Preparing", "Rewriting", "Comparing the content", "Committing" (before or
            after the comparison, as the strategy has it) or "Done".
        fraction: The share of the whole that is done, 0 to 1.
        bins_done: Bins that are rewritten, of `num_bins`; for the strategy "rewrite", and over Spark
            Connect, estimated from tasks and stages.
        bytes_done: Their bytes, of `size_bytes`.
        seconds: Since the run began.
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

    @property
    def seconds_left(self) -> float | None:
        """Seconds for the rest at the pace so far; None while nothing is rewritten, or it isn't known."""
        return None if self.size_bytes and not self.bytes_done else super().seconds_left

    def __str__(self) -> str:
        """The step and its measure; those that have none take the seconds that are shown anyway."""
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


Report = Callable[[Progress], None]


class Countdown:
    """The seconds left as text, which never rise; empty while the pace has slowed down too much to tell."""

    def __init__(self) -> None:
        self._least = math.inf

    def __call__(self, progress: Measured) -> str:
        """Return the text for a progress."""
        left = progress.seconds_left
        if left is None or progress.fraction >= 1:
            return ""
        self._least = min(self._least, left)
        return f"about {self._least:.0f} s left" if left <= 1.5 * self._least + 1 else ""


class ProgressBar:
    """A bar in a terminal or a notebook; call it with each progress."""

    def __init__(self) -> None:
        self._bar: tqdm[None] = tqdm(
            total=100,
            miniters=0,
            bar_format="{desc} |{bar}| {percentage:3.0f} % {elapsed}{postfix}",
            leave=False,
        )
        self._countdown = Countdown()

    def __call__(self, progress: Measured) -> None:
        """Show it."""
        self._bar.set_description_str(str(progress), refresh=False)
        self._bar.set_postfix_str(self._countdown(progress), refresh=False)
        self._bar.update(round(100 * progress.fraction) - self._bar.n)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()


class Recorder:
    """Reports how far a run is, and records its steps.

    Attributes:
        start: When the run began, in seconds since 1970.
        bins_done: Bins that are rewritten.
        bytes_done: Their bytes.
        bytes_compared: Bytes of files whose content was compared.
        conflicts: When another writer was in the way, in seconds since 1970, and how.
        peak_bytes: The most memory that a worker has held.
        fingerprint: That of the rows compared.
        proof_reason: Why Spark had to read them, if it had.
    """

    def __init__(self, report: Report, plan: BinPlan, verify: bool):
        self._report = report
        self._plan = plan
        self._rewriting = _REWRITING if verify else 1.0
        self._fraction = self._committed = 0.0
        self._commit_start: float | None = None
        self._spans: list[tuple[object, ...]] = []
        self.start = time.time()
        self.bins_done = self.bytes_done = self.bytes_compared = self.peak_bytes = 0
        self.conflicts: list[tuple[float, str]] = []
        self.fingerprint = Fingerprint(0, (0, 0))
        self.proof_reason = ""

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.time() - self.start

    def preparing(self) -> None:
        """Report that what is to be rewritten is not yet under way, unless some of it is done."""
        self._tell(REWRITING if self.bytes_done else PREPARING, self.bytes_compared)

    def rewriting(self, bins_done: int, bytes_done: int) -> None:
        """Report how many bins are done, and their bytes; it never goes back."""
        plan = self._plan
        self.bins_done = min(max(bins_done, self.bins_done), plan.num_bins)
        self.bytes_done = min(max(bytes_done, self.bytes_done), plan.bytes_removed)
        self._tell(REWRITING, self.bytes_compared)

    def comparing(self, size_bytes: float) -> None:
        """Report how many bytes of the current comparison are done."""
        self._tell(COMPARING, self.bytes_compared + size_bytes)

    def committing(self) -> None:
        """Report that all bins of a batch are rewritten, and Delta commits them."""
        self._tell(COMMITTING, self.bytes_compared)

    def ask(self, report: Callable[[], None]) -> None:
        """Report where no Spark work is watched.

        Raises:
            WorkCancelled: The watcher raised.
        """
        try:
            report()
        except Exception as error:
            raise WorkCancelled from error

    def mute(self) -> None:
        """Report nothing any more: nobody can cancel what comes."""
        self._report = nobody

    def done(self) -> None:
        """Report that all is done."""
        self.bins_done, self.bytes_done = self._plan.num_bins, self._plan.bytes_removed
        # Too late to cancel.
        with contextlib.suppress(Exception):
            self._fraction = 1.0
            self._tell(DONE, self.bytes_compared)

    def conflict(self, error: Exception) -> None:
        """Record that another writer was in the way."""
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
        """The steps, by their beginning; see `CompactionResult.timeline` for the columns."""
        rows = [dict(zip(TIMELINE.names, span, strict=True)) for span in self._spans]
        return pa.Table.from_pylist(rows, schema=TIMELINE).sort_by("start")

    def _tell(self, step: str, bytes_compared: float) -> None:
        plan = self._plan
        size_bytes = max(plan.bytes_removed, 1)
        rewritten, compared = self.bytes_done / size_bytes, min(bytes_compared / size_bytes, 1.0)
        prepared = _half_ways(self.seconds) if step == PREPARING else 1.0
        if step != COMMITTING:
            self._commit_start = None
        else:
            self._commit_start = self._commit_start or time.time()
            self._committed = max(self._committed, _half_ways(time.time() - self._commit_start))
        counted = self._rewriting * rewritten + (1 - self._rewriting) * compared
        uncounted = _PREPARING * prepared + _COMMITTING * self._committed
        fraction = uncounted + (1 - _PREPARING - _COMMITTING) * counted
        self._fraction = max(self._fraction, fraction)
        done = self.bins_done, plan.num_bins, self.seconds, self.bytes_done, plan.bytes_removed
        self._report(Progress(step, self._fraction, *done, int(size_bytes * compared)))


@dataclass(frozen=True)
class Work:
    """What a strategy is given.

    Attributes:
        handle: The table.
        plan: What to do.
        options: `max_threads` and `repartition`, for OPTIMIZE, if they are given.
        record: Of the run.
        verify: Whether the content is to be compared.
    """

    handle: Handle
    plan: BinPlan
    options: Mapping[str, Any]
    record: Recorder
    verify: bool

    @property
    def spark(self) -> SparkSession:
        """The session that works on the table."""
        return self.handle.spark

    @property
    def table(self) -> str:
        """The URI of the table's folder."""
        return self.handle.uri

    @property
    def store(self) -> Store:
        """The table's files."""
        return self.handle.store

    @property
    def log(self) -> TransactionLog:
        """The table's log."""
        return self.handle.log


def _half_ways(seconds: float) -> float:
    return float(1 - 0.5 ** (seconds / _HALF_WAY))


def nobody(_: object) -> None:
    """Report to nobody."""

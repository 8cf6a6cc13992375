"""How far a vacuum is."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compaction_kit.execute.work import seconds_left
from compaction_kit.text import format_count, format_size
from compaction_kit.vacuum.plan import VacuumPlan

_MOST_LOOKED_AT = 1_000


@dataclass(frozen=True)
class VacuumProgress:
    """How far a vacuum is, by what of a sample of its files is gone.

    Attributes:
        step: What it is at.
        fraction: The share of the files that is gone, 0 to 1.
        files_done: How many that makes, of `num_files`.
        bytes_done: Their bytes, of `size_bytes`.
        seconds: Since the run began.
    """

    step: str
    fraction: float
    files_done: int
    num_files: int
    bytes_done: int
    size_bytes: int
    seconds: float

    @property
    def seconds_left(self) -> float | None:
        """The rest at the pace so far; None while there is no pace to go by."""
        return seconds_left(self.fraction, self.seconds)

    def __str__(self) -> str:
        return (
            f"{self.step}, {self.files_done:,} of {format_count(self.num_files, 'file')}, "
            f"{format_size(self.bytes_done)} of {format_size(self.size_bytes)}"
        )


class Watcher:
    """Looks now and then at what is gone, and reports it."""

    def __init__(self, table: Path, plan: VacuumPlan, report: Callable[[VacuumProgress], None]):
        self._start = time.monotonic()
        self._plan, self._report = plan, report
        paths = plan.files["path"].to_pylist()
        sample = np.linspace(0, len(paths) - 1, min(len(paths), _MOST_LOOKED_AT)).astype(int)
        self._places = [str(table / paths[position]) for position in sample]

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.monotonic() - self._start

    def look(self, step: str | None = None) -> None:
        """Report how far it is."""
        gone = sum(not os.path.lexists(place) for place in self._places)
        share = gone / len(self._places) if self._places else 0.0
        self._report(
            VacuumProgress(
                step or ("Deleting" if gone else "Delta checks the files"),
                share,
                round(share * self._plan.num_files),
                self._plan.num_files,
                round(share * self._plan.size_bytes),
                self._plan.size_bytes,
                self.seconds,
            )
        )

"""How far a run is, and a bar that shows it."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from tqdm.auto import tqdm


@dataclass(frozen=True)
class Progress:
    """How far a run is: what it is at, the share of the whole that is done (0 to 1), and bins."""

    step: str
    fraction: float
    bins_done: int
    num_bins: int
    seconds: float

    @property
    def seconds_left(self) -> float | None:
        """The rest at the pace so far; None while there is no pace to go by."""
        if self.fraction < 0.02:
            return None
        return self.seconds * (1 - self.fraction) / self.fraction


Report = Callable[[Progress], None]


class Reporter:
    """Turns steps and shares of steps into `Progress`."""

    def __init__(self, report: Report, num_bins: int):
        self._report = report
        self._num_bins = num_bins
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._start

    def __call__(self, step: str, fraction: float, bins_done: int = 0) -> None:
        """Tell that a step has brought the run to this share of the whole."""
        self._report(Progress(step, fraction, bins_done, self._num_bins, self.seconds))


class ProgressBar:
    """A bar in a terminal or a notebook; call it with each `Progress`."""

    def __init__(self) -> None:
        self._bar: tqdm[None] = tqdm(
            total=100, miniters=0, bar_format="{desc} |{bar}| {percentage:3.0f} % {elapsed}", leave=False
        )

    def __call__(self, progress: Progress) -> None:
        """Show it."""
        self._bar.set_description_str(progress.step, refresh=False)
        self._bar.update(round(100 * progress.fraction) - self._bar.n)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()

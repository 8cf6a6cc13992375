"""How far a run is, and a bar that shows it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tqdm.auto import tqdm

from compaction_kit.text import format_count, format_size


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        step: What it is at.
        fraction: The share of the whole that is done, 0 to 1.
        bins_done: Bins that are rewritten, of `num_bins`.
        bytes_done: Their bytes, of `size_bytes`.
        seconds: Since the run began.
    """

    step: str
    fraction: float
    bins_done: int
    num_bins: int
    seconds: float
    bytes_done: int = 0
    size_bytes: int = 0

    @property
    def seconds_left(self) -> float | None:
        """The rest at the pace so far; None while there is no pace to go by."""
        return seconds_left(self.fraction, self.seconds)

    def __str__(self) -> str:
        parts = [self.step]
        if self.num_bins:
            parts.append(f"{self.bins_done:,} of {format_count(self.num_bins, 'bin')}")
        if self.size_bytes:
            parts.append(f"{format_size(self.bytes_done)} of {format_size(self.size_bytes)}")
        return ", ".join(parts)


Report = Callable[[Progress], None]


class Measured(Protocol):
    """How far anything is."""

    @property
    def fraction(self) -> float:
        """The share of the whole that is done, 0 to 1."""

    @property
    def seconds_left(self) -> float | None:
        """The rest; None while it isn't known."""


def seconds_left(fraction: float, seconds: float) -> float | None:
    """The rest at the pace so far; None while there is no pace to go by."""
    return None if fraction < 0.02 else seconds * (1 - fraction) / fraction


class ProgressBar:
    """A bar in a terminal or a notebook; call it with each progress."""

    def __init__(self) -> None:
        self._bar: tqdm[None] = tqdm(
            total=100,
            miniters=0,
            bar_format="{desc} |{bar}| {percentage:3.0f} % {elapsed}{postfix}",
            leave=False,
        )

    def __call__(self, progress: Measured) -> None:
        """Show it."""
        self._bar.set_description_str(str(progress), refresh=False)
        left = progress.seconds_left
        self._bar.set_postfix_str("" if left is None else f"about {left:.0f} s left", refresh=False)
        self._bar.update(round(100 * progress.fraction) - self._bar.n)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()

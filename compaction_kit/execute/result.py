"""What a run did, by the log."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compaction_kit.markup import as_html, as_text
from compaction_kit.sizes import format_count, format_size
from compaction_kit.verify import Fingerprint

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class CompactionResult:
    """What a run did; counts and bytes are read from the commit in the log.

    `verified` is True if the content was compared and is the same, None if it wasn't compared.
    `refusals` has the bins that the strategy left alone, by number, with the reason. `as_planned`
    says whether exactly the planned files were rewritten. `sizes_before` and `sizes_after` are the
    bytes of every live file at the versions before and after.
    """

    strategy: str
    versions: tuple[int, ...]
    num_bins: int
    num_files_added: int
    num_files_removed: int
    bytes_added: int
    bytes_removed: int
    seconds: float
    verified: bool | None
    fingerprint: Fingerprint | None
    refusals: Mapping[int, str]
    as_planned: bool
    sizes_before: np.ndarray
    sizes_after: np.ndarray

    def facts(self) -> dict[str, str]:
        """The outcome for people: name and value."""
        if not self.versions:
            return {"outcome": "nothing to do: the plan is empty, so nothing was committed"}
        proof = "not compared" if self.fingerprint is None else f"identical: {self.fingerprint}"
        return {
            "version": f"{', '.join(map(str, self.versions))}, by {self.strategy}",
            "files": f"{self.num_files_removed:,} → {self.num_files_added:,}"
            f" (the table: {len(self.sizes_before):,} → {len(self.sizes_after):,})",
            "bytes": f"{format_size(self.bytes_removed)} → {format_size(self.bytes_added)}",
            "bins": f"{self.num_bins:,}, {'as planned' if self.as_planned else 'NOT as planned'}",
            **({"left alone": self._left_alone()} if self.refusals else {}),
            "content": proof,
            "seconds": f"{self.seconds:.1f}",
        }

    def _left_alone(self) -> str:
        reasons = sorted(set(self.refusals.values()))
        return f"{format_count(len(self.refusals), 'bin')}: {'; '.join(reasons)}"

    def summary(self) -> str:
        """The outcome in a few lines."""
        return as_text(self.facts())

    def plot(self) -> "Figure":
        """Draw the sizes before and after, on one scale."""
        from compaction_kit import plots

        return plots.before_after(self.sizes_before, self.sizes_after)

    def _repr_html_(self) -> str:
        from compaction_kit import plots

        return f"<div>{as_html(self.facts())}{plots.to_html(self.plot())}</div>"

    def __repr__(self) -> str:
        return f"CompactionResult(\n{self.summary()}\n)"

"""What a run did, by the log."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compaction_kit.sizes import format_size
from compaction_kit.verify import Fingerprint

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class CompactionResult:
    """What a run did; counts and bytes are read from the commit in the log.

    `verified` is True if the content was compared and is the same, None if it wasn't compared.
    `as_planned` says whether exactly the planned files were rewritten. `sizes_before` and
    `sizes_after` are the bytes of every live file at the versions before and after.
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
    as_planned: bool
    sizes_before: np.ndarray
    sizes_after: np.ndarray

    def summary(self) -> str:
        """The outcome in a few lines."""
        if not self.versions:
            return "Nothing to do: the plan is empty, so nothing was committed."
        lines = [
            f"version    {', '.join(map(str, self.versions))}, by {self.strategy}",
            f"files      {self.num_files_removed:,} → {self.num_files_added:,}"
            f" (the table: {len(self.sizes_before):,} → {len(self.sizes_after):,})",
            f"bytes      {format_size(self.bytes_removed)} → {format_size(self.bytes_added)}",
            f"bins       {self.num_bins:,}, {'as planned' if self.as_planned else 'NOT as planned'}",
        ]
        if self.fingerprint is not None:
            lines.append(f"content    identical: {self.fingerprint}")
        else:
            lines.append("content    not compared")
        lines.append(f"seconds    {self.seconds:.1f}")
        return "\n".join(lines)

    def plot(self) -> "Figure":
        """Draw the sizes before and after, on one scale."""
        from compaction_kit import plots

        return plots.before_after(self.sizes_before, self.sizes_after)

    def _repr_html_(self) -> str:
        from compaction_kit import plots

        return f"<div><pre>{self.summary()}</pre>{plots.to_html(self.plot())}</div>"

    def __repr__(self) -> str:
        return f"CompactionResult(\n{self.summary()}\n)"

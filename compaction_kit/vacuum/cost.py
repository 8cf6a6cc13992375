"""What a vacuum costs: the versions that can't be read any more, and where their content lives on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from compaction_kit.history.content import CLAIMED, Content
from compaction_kit.history.readable import BLOCKED, YES, Readability
from compaction_kit.retention import GUARD
from compaction_kit.vacuum.words import ranges


@dataclass(frozen=True)
class Cost:
    """Which versions can be read before and after.

    Attributes:
        state: What decides it.
        before, after: The status of each of `state.needs.versions`.
        going: The paths of the files that go.
        superseded: Whether VACUUM commits its start and its end, so that the latest version is so
            no more, and the guard blocks it if it is older than the retention.
    """

    state: Readability
    before: np.ndarray
    after: np.ndarray
    going: pa.Array
    superseded: bool

    @classmethod
    def of(cls, state: Readability, going: pa.Array, superseded: bool) -> "Cost":
        """Of the files that go, by their paths."""
        after = state.statuses(gone=going, superseded=superseded)
        return cls(state, state.statuses(), after, going, superseded)

    @property
    def lost(self) -> list[int]:
        """The versions that can be read before and not after."""
        lost = (self.before == YES) & (self.after != YES)
        return [int(version) for version in self.state.needs.versions[lost]]

    @property
    def blocked_lost(self) -> list[int]:
        """The versions that the guard blocks though they have all their files, and that lose some."""
        needs = self.state.needs
        whole = ~needs.versions_without(self.state.missing)
        lost = (self.before == BLOCKED) & whole & needs.versions_without(self.going)
        return [int(version) for version in needs.versions[lost]]

    @property
    def versions(self) -> pa.Table:
        """See `VacuumPlan.versions`."""
        times = pa.array(self.state.times, mask=~self.state.has_commit)
        return pa.table(
            {
                "version": self.state.needs.versions,
                "timestamp": times.cast(pa.timestamp("ms", "UTC")),
                "readable": pa.array(self.before, pa.string()),
                "readable_after": pa.array(self.after, pa.string()),
            }
        )

    def survivors(self, content: Content) -> dict[int, tuple[int, str]]:
        """For each version lost the latest known to have the same content that can be read after; and how."""
        needs = self.state.needs
        groups = content.groups.tolist()
        able = needs.versions[self.after == YES].tolist()
        instead = {groups[version - needs.first]: version for version in able}
        if self.superseded:
            # VACUUM's own commits have the content of the latest version.
            instead.setdefault(groups[-1], needs.latest + 2)
        found = {version: instead.get(groups[version - needs.first]) for version in self.lost}
        return {
            version: (other, content.evidence(version, min(other, needs.latest)) or "")
            for version, other in found.items()
            if other is not None
        }

    def claims(self, content: Content) -> dict[int, int]:
        """For each version lost the latest that can be read after and is merely claimed to be the same."""
        if not any(content.claims):
            return {}
        able = self.state.needs.versions[self.after == YES].tolist()
        claimed = {
            version: [other for other in able if content.claim(version, other) == CLAIMED]
            for version in self.lost
        }
        return {version: others[-1] for version, others in claimed.items() if others}

    def blocked(self, keep: Sequence[int]) -> list[str]:
        """A sentence if Delta's guard refuses versions that are kept, files or no files."""
        blocked = [version for version in keep if self.after[version - self.state.needs.first] == BLOCKED]
        if not blocked:
            return []
        which = f"Version {blocked[0]} is" if len(blocked) == 1 else f"Versions {ranges(blocked)} are"
        return [
            f"{which} kept, and older than the retention, so that Delta's guard refuses to read what is "
            f"there: set {GUARD} to false to read it."
        ]

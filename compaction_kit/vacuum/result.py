"""What a vacuum did, by the disk and the log."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure

from compaction_kit import plots
from compaction_kit.text import as_text, format_count, format_seconds, format_size, shown
from compaction_kit.vacuum.words import first, ranges, spent_versions

NOT_DELETED = pa.schema([("path", pa.string()), ("size_bytes", pa.int64()), ("why", pa.string())])
_MOST_NAMED = 3


@dataclass(frozen=True)
class VacuumResult:
    """What a vacuum did.

    Attributes:
        files: The files that went: path (relative to the table, decoded), size_bytes.
        not_deleted: The planned files that did not: path, size_bytes, why.
        not_planned: Paths that are gone and were not planned, which only others can have taken.
        directories: The folders that went, by their paths.
        commits: The versions that VACUUM has committed, its start and its end; none where the session
            has spark.databricks.delta.vacuum.logging.enabled off.
        storage, versions: As the plan has them, and as it came.
        versions_lost: The versions that could be read before and can't be now.
        content_survives_as: For versions lost, the version of the same content that can be read now.
        versions_lost_as_planned: Whether those are the plan's.
        seconds: The whole run.
    """

    files: pa.Table
    not_deleted: pa.Table
    not_planned: tuple[str, ...]
    directories: tuple[str, ...]
    commits: tuple[int, ...]
    storage: pa.Table
    versions: pa.Table
    versions_lost: list[int]
    content_survives_as: Mapping[int, int]
    versions_lost_as_planned: bool
    seconds: float

    @property
    def num_files(self) -> int:
        """How many files went."""
        return self.files.num_rows

    @property
    def size_bytes(self) -> int:
        """The bytes of the files that went."""
        return pc.sum(self.files["size_bytes"]).as_py() or 0

    @property
    def as_planned(self) -> bool:
        """Whether exactly the planned files went, at the cost that was told."""
        return not len(self.not_deleted) and not self.not_planned and self.versions_lost_as_planned

    def facts(self) -> dict[str, str]:
        """The outcome for people: name and value."""
        if not self.num_files and not self.directories and not len(self.not_deleted):
            return {"outcome": "nothing to do: the plan is empty, so nothing was deleted"}
        lost = f"{len(self.versions_lost):,}: {ranges(self.versions_lost)}" if self.versions_lost else "none"
        facts = {"versions lost": lost}
        if self.content_survives_as:
            pairs = [f"{lost} as {other}" for lost, other in self.content_survives_as.items()]
            facts["of the same content"] = first(pairs)
        facts["deleted"] = (
            f"{format_count(self.num_files, 'file')}, {format_size(self.size_bytes)}"
            f"{', as planned' if self.as_planned else ''}"
        )
        if self.directories:
            facts["folders"] = f"{format_count(len(self.directories), 'empty one')} too"
        if len(self.not_deleted):
            facts["not deleted"] = self._not_deleted()
        if self.not_planned:
            facts["not planned"] = f"{format_count(len(self.not_planned), 'file')} that others took meanwhile"
        if self.commits:
            facts["committed"] = f"version {', '.join(map(str, self.commits))}: VACUUM's start and end"
        return facts | {"time": format_seconds(self.seconds)}

    def summary(self) -> str:
        """The outcome in a few lines."""
        return as_text(self.facts())

    def plot(self) -> Figure:
        """Draw the storage before and after, and which versions could be read before and can be now."""
        before = self.versions["readable"].to_pylist().count("yes")
        spent = spent_versions(self.versions_lost, self.content_survives_as, before)
        return plots.vacuum(
            self.storage, self.versions, f"VACUUM cost {spent} and freed {format_size(self.size_bytes)}"
        )

    def _not_deleted(self) -> str:
        rows = self.not_deleted.to_pylist()
        named = "; ".join(f"{row['path']}: {row['why']}" for row in rows[:_MOST_NAMED])
        more = f"; and {len(rows) - _MOST_NAMED:,} more" if len(rows) > _MOST_NAMED else ""
        return f"{format_count(len(rows), 'file')}: {named}{more}"

    def _repr_html_(self) -> str:
        return shown(self.facts(), self.plot())

    def __repr__(self) -> str:
        return f"VacuumResult(\n{self.summary()}\n)"

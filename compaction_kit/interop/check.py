"""Whether a symlink manifest is the current version's, and what differs."""

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure

from compaction_kit import plots
from compaction_kit.interop.damage import Damage
from compaction_kit.interop.manifest import PROPERTY
from compaction_kit.text import format_count, shown

LIVE, DELETED, MISSING, STALE = (
    "listed and live",
    "listed, live with rows deleted",
    "live, not listed",
    "listed, not live",
)


@dataclass(frozen=True)
class ManifestCheck:
    """A symlink manifest beside the log; made by `check_manifest`.

    Attributes:
        table: The table's name.
        latest: The table's version.
        version: The newest version whose live files are exactly those listed; None if there is none.
        partitions: One row a partition that is listed or live: partition (its folder), num_listed,
            num_live, version (the newest at which the partition's live files were exactly those
            listed; null for none), matches.
        files: One row a file that is listed or live: path, partition, state ("listed and live",
            "listed, live with rows deleted": by a deletion vector, which the manifest can't tell;
            "live, not listed"; "listed, not live"), on_disk, num_rows (deleted ones too; null where
            neither the log nor the file says), num_deleted (by a vector), added and removed (the
            version that added it first, and the one that removed it; null if the log doesn't tell,
            or it is live).
        num_repeated: How many lines name a file that another line of the same partition names too.
        by_version: One row a version: version, num_live, num_listed (how many of its live files are listed).
        damage: Rows that a reader reads twice, misses, or reads though they are outdated; the
            last two count whole files.
        kept: Whether Delta keeps the manifest up to date.
        refusal: Why Delta would make none now; None if it would.
    """

    table: str
    latest: int
    version: int | None
    partitions: pa.Table
    files: pa.Table
    num_repeated: int
    by_version: pa.Table
    damage: Damage
    kept: bool
    refusal: str | None

    @property
    def matches(self) -> bool:
        """Whether a reader through the manifest reads the current version."""
        are_live = pc.all(pc.equal(self.files["state"], LIVE)).as_py() is not False
        return are_live and not self.num_gone and not self.num_repeated

    @property
    def same_rows(self) -> bool:
        """Whether a reader through the manifest gets the current version's rows, be it from older files."""
        known = self.partitions["version"].null_count == 0
        return known and not self.num_gone and not self.damage

    @property
    def elsewhere(self) -> list[str]:
        """Listed files that are not live and not in the table's folder."""
        paths = self.files.filter(pc.equal(self.files["state"], STALE))["path"].to_pylist()
        return [path for path in paths if path.startswith("/") or "://" in path]

    @cached_property
    def num_gone(self) -> int:
        """How many listed files are not there any more, at which a reader fails."""
        listed = pc.not_equal(self.files["state"], MISSING)
        return pc.sum(pc.and_(listed, pc.invert(self.files["on_disk"]))).as_py() or 0

    def count(self, state: str) -> int:
        """How many files are in a state."""
        return pc.sum(pc.equal(self.files["state"], state)).as_py() or 0

    def facts(self) -> dict[str, str]:
        """The outcome for people: name and value."""
        return {
            "manifest": self._which(),
            **({} if self.matches else {"files": self._files(), "its readers": self._readers()}),
            "kept by Delta": f"yes, by {PROPERTY}" if self.kept else "no",
            **({} if self.matches else {"what to do": self._advice()}),
        }

    def explain(self) -> str:
        """Which version the manifest is that of, what differs, and what its readers get."""
        texts = [text for name, text in self.facts().items() if name != "kept by Delta"]
        return "\n".join(f"{text[0].upper()}{text[1:]}." for text in texts)

    def plot(self) -> Figure:
        """Draw how many of each version's live files are listed."""
        return plots.manifest(self.by_version, self.version)

    def _repr_html_(self) -> str:
        return shown(self.facts(), self.plot())

    def __repr__(self) -> str:
        return f"ManifestCheck({self._which()})"

    def _which(self) -> str:
        now = f"the table is at version {self.latest}"
        if self.matches:
            count = format_count(self.count(LIVE), "live file")
            return f"lists the {count} of version {self.latest}, the current one"
        if self.version == self.latest:
            return f"lists the files of version {self.version}, the current one"
        if self.version is not None:
            return f"is that of version {self.version}, and {now}"
        versions = self.partitions["version"]
        if len(versions) == 1:
            return f"is that of no version that the log tells of, and {now}"
        known = ", ".join(map(str, sorted(set(versions.drop_null().to_pylist()))))
        parts = [f"version{'s' * (',' in known)} {known}"] if known else []
        if versions.null_count:
            parts.append(f"no version in {format_count(versions.null_count, 'partition')}")
        return f"is a mixture over its partitions, of {' and '.join(parts)}, and {now}"

    def _files(self) -> str:
        counts = {state: self.count(state) for state in (LIVE, DELETED, MISSING, STALE)}
        texts = [", ".join(f"{count:,} {state}" for state, count in counts.items() if count)]
        if self.num_gone:
            texts.append(f"{self.num_gone:,} of those listed are gone from the disk")
        if self.num_repeated:
            texts.append(f"{format_count(self.num_repeated, 'file')} listed twice")
        if self.elsewhere:
            texts.append(
                f"{len(self.elsewhere):,} of those listed are in another folder, as after the table was "
                f"moved or copied, such as {self.elsewhere[0]}"
            )
        return "; ".join(texts)

    def _readers(self) -> str:
        if self.num_gone:
            return f"fail: {format_count(self.num_gone, 'listed file')} not there any more"
        if self.same_rows:
            return "get the same rows, from files that were only rewritten since, until VACUUM takes those"
        lost = {"read twice": self.damage.twice, "missed": self.damage.missed}
        parts = [f"{format_count(count, 'row')} {what}" for what, count in lost.items() if count]
        if self.damage.outdated:
            count = format_count(self.damage.outdated, "row")
            parts.append(f"{count} read of files with rows that are deleted or updated")
        return f"get other rows: {', '.join(parts) or 'how many the log does not tell'}"

    def _advice(self) -> str:
        if self.refusal:
            return f"Delta makes no manifest now: {self.refusal}"
        return "make it anew with interop.generate_manifest(table)"

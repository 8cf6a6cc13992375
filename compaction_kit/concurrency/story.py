"""What came of two writers at once."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from matplotlib.figure import Figure

from compaction_kit import plots
from compaction_kit.concurrency.scenarios import Scenario
from compaction_kit.text import as_text, shown

ATTEMPTS = pa.schema(
    [
        ("writer", pa.string()),
        ("read_version", pa.int64()),
        ("version", pa.int64()),
        ("outcome", pa.string()),
        ("operation", pa.string()),
        ("isolation_level", pa.string()),
        ("is_blind_append", pa.bool_()),
    ]
)
# Delta's rules (ConflictChecker), by the exception that tells of each.
_RULES = {
    "ConcurrentAppendException": "the {second} added a file where the {first} had read, so that the {first} "
    "hadn't seen all of what it changes",
    "ConcurrentDeleteReadException": "the {second} removed a file that the {first} had read and rewritten, "
    "so that its new files would bring back what is gone, or bring it twice",
    "ConcurrentTransactionException": "the {second} wrote the batch that the {first} was about to commit: "
    "both carry the same application and number (a txn action), and a batch counts once",
    "MetadataChangedException": "the {second} changed the table's columns or properties, by which the "
    "{first} had written its files",
}
_ANEW = (
    "version {taken} changed the table's metadata, so the commit was refused; OPTIMIZE looked again, found "
    "all files that it had rewritten still there, and committed the same work by a new transaction"
)
_SNAPSHOT = (
    "the {first} changes no data, so all it needs is that the files it read are still there (its isolation "
    "level is SnapshotIsolation): version {taken} had removed none of them"
)
_BLIND = "the {first} had read nothing of the table (a blind append), so nothing could come in between"
_APART = "version {taken} added nothing where the {first} had read, and removed nothing that it had read"


@dataclass(frozen=True)
class Refusal:
    """How Delta told the first writer.

    Attributes:
        exception: The exception's class, one of delta.exceptions.
        condition: Delta's error class, such as "DELTA_CONCURRENT_DELETE_READ.WITH_PARTITION_HINT".
        message: What it says of this case.
    """

    exception: str
    condition: str
    message: str


@dataclass(frozen=True)
class Story:
    """What came of a scenario; draws itself.

    Attributes:
        scenario: Who met whom.
        table: The folder of the table it was played on.
        attempts: One row a commit that was tried, in order of time: writer, read_version (at which
            its transaction began), version (that it tried to commit; null if it came to none),
            outcome ("committed"; "taken", the version was, without a conflict; "refused"; "gave up"),
            and of those committed operation, isolation_level, is_blind_append.
        refusal: What the first writer was told; None if it committed.
        versions: The table's, before both and after.
        ids_before, ids_after: The ids of its rows, sorted.
        ids_expected: Those it would have if the writers that committed had come one after another, in
            the order of their versions.
    """

    scenario: Scenario
    table: Path
    attempts: pa.Table
    refusal: Refusal | None
    versions: tuple[int, int]
    ids_before: tuple[int, ...]
    ids_after: tuple[int, ...]
    ids_expected: tuple[int, ...]

    @property
    def winners(self) -> tuple[str, ...]:
        """Those who committed, in the order of their versions."""
        committed = self.attempts.filter(pa.compute.equal(self.attempts["outcome"], "committed"))
        return tuple(committed["writer"].to_pylist())

    @property
    def rows_lost(self) -> int:
        """Rows that ought to be there and aren't."""
        return len(set(self.ids_expected) - set(self.ids_after))

    @property
    def rows_doubled(self) -> int:
        """Rows that are there more often than they ought to be."""
        return (Counter(self.ids_after) - Counter(self.ids_expected)).total()

    @property
    def finding(self) -> str:
        """Who won, in a line."""
        if self.refusal is None:
            return f"{self.scenario.name}: both committed"
        return f"{self.scenario.name}: the {self.winners[0]} won, the {self.scenario.first.name} was refused"

    @property
    def why(self) -> str:
        """The rule that decided, in a sentence, from what was committed or raised."""
        *others, last = self.attempts.to_pylist()
        if self.refusal is not None:
            rule = _RULES.get(self.refusal.exception, self.refusal.message)
        elif "refused" in [other["outcome"] for other in others]:
            rule = _ANEW
        elif last["is_blind_append"]:
            rule = _BLIND
        else:
            rule = _SNAPSHOT if last["isolation_level"] == "SnapshotIsolation" else _APART
        words = {"first": self.scenario.first.name, "second": self.scenario.second.name}
        for name, word in {**words, "taken": str(self.versions[0] + 1)}.items():
            rule = rule.replace(f"{{{name}}}", word)
        return f"{rule[0].upper()}{rule[1:]}."

    def facts(self) -> dict[str, str]:
        """The story for people: name and value."""
        first, second = self.scenario.first, self.scenario.second
        told = self.refusal
        return {
            "what happens": self.scenario.about,
            f"{first.name}, held": first.statement,
            f"{second.name}, in between": second.statement,
            "who won": " and ".join(self.winners),
            **(
                {"exception": told.exception, "error class": told.condition, "Delta says": told.message}
                if told
                else {}
            ),
            "why": self.why,
            "versions": f"{self.versions[0]} → {self.versions[1]}",
            "rows": f"{len(self.ids_before):,} → {len(self.ids_after):,}, {self.rows_lost:,} lost, "
            f"{self.rows_doubled:,} doubled",
        }

    def summary(self) -> str:
        """The story in a few lines, then the commits tried."""
        tries = (
            f"{row['writer']} read version {row['read_version']}, "
            + ("tried none" if row["version"] is None else f"tried version {row['version']}")
            + f": {row['outcome']}"
            for row in self.attempts.to_pylist()
        )
        return "\n".join([as_text(self.facts()), "", *tries])

    def plot(self) -> Figure:
        """Draw the two writers and the log between them, in order of time."""
        exception = None if self.refusal is None else self.refusal.exception
        names = (self.scenario.first.name, self.scenario.second.name)
        return plots.concurrency(self.attempts, names, self.finding, exception)

    def _repr_html_(self) -> str:
        return shown(self.facts(), self.attempts, self.plot())

    def __repr__(self) -> str:
        return f"Story(\n{self.summary()}\n)"

"""Two writers of one table at once, each time the same: who wins, and by which of Delta's rules.

Delta's writers take no locks. Each reads a version, writes files, and tries to commit the next version; if
another one has committed that meanwhile, it checks whether this changed what it had read (Delta's
ConflictChecker).
"""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from compaction_kit import plots
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.execute.jvm import is_conflict
from compaction_kit.lessons import new_folder, read_ids
from compaction_kit.lessons.writers import NUM_ROWS, SCENARIOS, Held, Scenario, make_table
from compaction_kit.log import TransactionLog
from compaction_kit.records import Result
from compaction_kit.session import get_spark, quiet_errors

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
# Delta's rules (ConflictChecker), by the exception of each.
_RULES = {
    "ConcurrentAppendException": "The {second} added a file where the {first} had read, so that the {first} "
    "hadn't seen all of what it changes.",
    "ConcurrentDeleteReadException": "The {second} removed a file that the {first} had read and rewritten, "
    "so that its new files would bring back what is gone, or bring it twice.",
    "ConcurrentTransactionException": "The {second} wrote the batch that the {first} was about to commit: "
    "both have the same application and number (a txn action), and a batch counts once.",
    "MetadataChangedException": "The {second} changed the table's columns or properties, by which the "
    "{first} had written its files.",
}
_ANEW = (
    "Version {taken} changed the table's metadata, so the commit was refused; OPTIMIZE looked again, found "
    "all files that it had rewritten still there, and committed the same work by a new transaction."
)
_SNAPSHOT = (
    "The {first} changes no data, so all it needs is that the files it read are still there (its isolation "
    "level is SnapshotIsolation): version {taken} had removed none of them."
)
_BLIND = "The {first} had read nothing of the table (a blind append), so nothing could come in between."
_APART = "Version {taken} added nothing where the {first} had read, and removed nothing that it had read."
_CONDITION = re.compile(r"^\[([\w.]+)\]\s*(?:\w+Exception: )?")
# What Delta adds to every conflict: what to do, where to read on, the other's whole commitInfo.
_ADDED = re.compile(r"\s+(?:Please (?:re)?try|Conflicting commit:|Refer to).*", re.DOTALL)


@dataclass(frozen=True)
class Refusal:
    """How Delta refused the first writer's commit.

    Attributes:
        exception: The exception's class, one of delta.exceptions.
        condition: Delta's error class, such as "DELTA_CONCURRENT_DELETE_READ.WITH_PARTITION_HINT".
        message: What it says of this case.
    """

    exception: str
    condition: str
    message: str


@dataclass(frozen=True, repr=False)
class Story(Result):
    """How two writers at once ended.

    Attributes:
        scenario: The two writers.
        table: The folder of the table it was played on.
        attempts: One row a commit that was tried, in order of time: writer (string), read_version (int64,
            at which its transaction began), version (int64, the one that it tried to commit; null if it
            tried none), outcome (string: "committed"; "taken", the version was, without a conflict;
            "refused"; "gave up"), and of those committed operation, isolation_level (string) and
            is_blind_append (bool).
        refusal: How Delta refused the first writer; None if it committed.
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
        committed = self.attempts.filter(pc.field("outcome") == "committed")
        return tuple(committed["writer"].to_pylist())

    @property
    def rows_lost(self) -> int:
        """The number of rows that are missing."""
        return len(set(self.ids_expected) - set(self.ids_after))

    @property
    def rows_doubled(self) -> int:
        """The number of rows that are there more often than they should be."""
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
            rule = _RULES.get(self.refusal.exception)
            if rule is None:
                return self.refusal.message
        elif "refused" in [other["outcome"] for other in others]:
            rule = _ANEW
        elif last["is_blind_append"]:
            rule = _BLIND
        else:
            rule = _SNAPSHOT if last["isolation_level"] == "SnapshotIsolation" else _APART
        first, second = self.scenario.first.name, self.scenario.second.name
        return rule.format(first=first, second=second, taken=self.versions[0] + 1)

    def facts(self) -> dict[str, str]:
        """The story for people: name and value."""
        first, second = self.scenario.first, self.scenario.second
        facts = {
            "what happens": self.scenario.about,
            f"{first.name}, held": first.statement,
            f"{second.name}, in between": second.statement,
            "who won": " and ".join(self.winners),
        }
        if self.refusal is not None:
            facts |= {"exception": self.refusal.exception, "error class": self.refusal.condition}
            facts["Delta says"] = self.refusal.message
        return facts | {
            "why": self.why,
            "versions": f"{self.versions[0]} → {self.versions[1]}",
            "rows": f"{len(self.ids_before):,} → {len(self.ids_after):,}, {self.rows_lost:,} lost, "
            f"{self.rows_doubled:,} doubled",
        }

    def summary(self) -> str:
        """The facts, then the commits tried, one a line."""
        tries = (
            f"{row['writer']} read version {row['read_version']}, "
            + ("tried none" if row["version"] is None else f"tried version {row['version']}")
            + f": {row['outcome']}"
            for row in self.attempts.to_pylist()
        )
        return "\n".join([super().summary(), "", *tries])

    def parts(self) -> tuple[object, ...]:
        """The facts, the commits tried, the figure."""
        return self.facts(), self.attempts, self.plot()

    def plot(self) -> Figure:
        """Draw the two writers and the log between them, in order of time."""
        exception = None if self.refusal is None else self.refusal.exception
        names = (self.scenario.first.name, self.scenario.second.name)
        return plots.concurrency(self.attempts, names, self.finding, exception)


def scenarios() -> dict[str, str]:
    """What can be played: each scenario's name, and what happens in it."""
    return {name: scenario.about for name, scenario in SCENARIOS.items()}


def play(folder: str | Path, name: str, spark: SparkSession | None = None) -> Story:
    """Run two writers at once on a table made for it, and say which won and why.

    The same happens each time: Delta itself holds the first writer after it has read and written its
    files and before it tries to commit; the second begins on the same version and commits; then the
    first is released.

    Args:
        folder: Where a folder with the new table is made; another one each time.
        name: One of `scenarios()`.
        spark: The session; None for that of `get_spark()`.

    Returns:
        The commits that were tried, how they ended, and the table's rows before and after.

    Raises:
        InvalidArgumentError: There is no such scenario, or the folder can't be used.
        SessionError: The session's JVM is out of reach.
    """
    scenario = SCENARIOS.get(name)
    if scenario is None:
        raise InvalidArgumentError(f'"{name}" is no scenario: choose one of {", ".join(SCENARIOS)}.')
    table = new_folder(folder, name)
    spark = spark or get_spark()
    make_table(spark, table)
    log = TransactionLog(table)
    before = log.segment().version
    with quiet_errors():
        held = Held(spark, lambda: scenario.first.run(spark, table))
        try:
            scenario.second.run(spark, table)
        finally:
            error = held.release()
    if error is not None and not is_conflict(error):
        raise error
    ids = range(NUM_ROWS)
    expected = scenario.second.effect(set(ids))
    if error is None:
        expected = scenario.first.effect(expected)
    return Story(
        scenario,
        table,
        _attempts(scenario, log, before, held.num_transactions),
        None if error is None else _refusal(error),
        versions=(before, log.segment().version),
        ids_before=tuple(ids),
        ids_after=read_ids(spark, table),
        ids_expected=tuple(sorted(expected)),
    )


def _attempts(scenario: Scenario, log: TransactionLog, before: int, num_transactions: int) -> pa.Table:
    """The commits tried: those committed from the log, the others from what Delta's observer saw."""
    commits = {row["version"]: row for row in log.commits().to_pylist()}
    taken = before + 1
    first: dict[str, Any] = {"writer": scenario.first.name}
    tries = [commits[taken] | {"writer": scenario.second.name, "outcome": "committed"}]
    own = commits.get(taken + 1)
    refused = own is None or own["read_version"] > before
    tries.append(
        first | {"read_version": before, "version": taken, "outcome": "refused" if refused else "taken"}
    )
    if own is not None:
        tries.append(own | first | {"outcome": "committed"})
    elif num_transactions > 1:
        tries.append(first | {"read_version": taken, "outcome": "gave up"})
    return pa.Table.from_pylist(tries, schema=ATTEMPTS)


def _refusal(error: BaseException) -> Refusal:
    text = str(error)
    condition = _CONDITION.match(text)
    message = _ADDED.sub("", _CONDITION.sub("", text))
    return Refusal(type(error).__name__, condition[1] if condition else "", message)

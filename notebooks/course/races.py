"""Run two concurrent writers of one table, reproducibly, and explain which of Delta's rules decided."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.execute.delta import is_conflict
from compaction_kit.log import TransactionLog
from compaction_kit.session import get_spark, quiet_errors
from course import figures, new_folder, read_ids
from course.writers import NUM_ROWS, SCENARIOS, PausedWriter, Scenario, make_table

# The rule that decided: Delta's ConflictChecker rules by exception, or why there was no conflict.
_RULES = {
    "ConcurrentAppendException": "The {second} added a file where the {first} had read, so the {first} may "
    "have missed rows.",
    "ConcurrentDeleteReadException": "The {second} removed a file that the {first} had read and rewritten, "
    "so the new files would restore deleted rows, or add rows twice.",
    "ConcurrentTransactionException": "The {second} wrote the batch that the {first} was about to commit: "
    "both have the same appId and version in their txn actions, and a batch is written only once.",
    "MetadataChangedException": "The {second} changed the table's columns or properties, with which "
    "the {first} had written its files.",
    "retried": "Version 1 changed the table's metadata, so the commit was refused; all files that "
    "OPTIMIZE had rewritten were still live, so it committed the same work in a new transaction.",
    "blind": "The {first} read nothing (a blind append), so version 1 does not conflict with it.",
    "snapshot": "The {first} changes no data (SnapshotIsolation), so only the files that it read must still "
    "be live, and version 1 removed none of them.",
    "apart": "Version 1 added no file where the {first} had read, and removed none that it read.",
}


@dataclass(frozen=True, repr=False)
class Story:
    """How two concurrent writers ended; made by `play`.

    Attributes:
        scenario: The two writers.
        table: The folder of the table, which began with version 0.
        attempts: One row per attempt to commit, in order of time: writer, read_version (of the transaction),
            version (that it tried to commit; null if it didn't try), outcome ("committed"; "taken", another
            writer had committed that version, without a conflict; "refused"; "gave up"), and for commits
            the columns of `TransactionLog.commits`.
        exception: The first writer's exception, if Delta refused its commit; None if it committed.
        ids_after: The sorted ids of the table's rows afterwards; before, they are 0 to 39.
        ids_expected: The ids if the writers that committed had run one after the other, in commit order.
    """

    scenario: Scenario
    table: Path
    attempts: pa.Table
    exception: str | None
    ids_after: tuple[int, ...]
    ids_expected: tuple[int, ...]

    @property
    def winners(self) -> tuple[str, ...]:
        """Names of the writers that committed, in the order of their versions."""
        committed = self.attempts.filter(pc.field("outcome") == "committed")
        return tuple(committed["writer"].to_pylist())

    @property
    def rows(self) -> str:
        """The number of rows before and after, and how many rows are lost or doubled."""
        expected, found = Counter(self.ids_expected), Counter(self.ids_after)
        lost, doubled = (expected - found).total(), (found - expected).total()
        return f"{NUM_ROWS} → {len(self.ids_after):,}, {lost:,} lost, {doubled:,} doubled"

    @property
    def finding(self) -> str:
        """The outcome in one line."""
        if self.exception is None:
            return f"{self.scenario.name}: both committed"
        return f"{self.scenario.name}: the {self.winners[0]} won, the {self.scenario.first.name} was refused"

    @property
    def why(self) -> str:
        """The rule that decided, in a sentence."""
        last = self.attempts.to_pylist()[-1]
        if self.exception is not None:
            rule = self.exception
        elif "refused" in self.attempts["outcome"].to_pylist():
            rule = "retried"
        elif last["is_blind_append"]:
            rule = "blind"
        else:
            rule = "snapshot" if last["isolation_level"] == "SnapshotIsolation" else "apart"
        return _RULES.get(rule, rule).format(first=self.scenario.first.name, second=self.scenario.second.name)

    def __repr__(self) -> str:
        return f"{self.finding}. {self.why}"

    def plot(self) -> Figure:
        """Draw the two writers and the log between them, in order of time."""
        names = (self.scenario.first.name, self.scenario.second.name)
        return figures.concurrency(self.attempts, names, self.finding, self.exception)


def play(folder: str | Path, name: str, spark: SparkSession | None = None) -> Story:
    """Run two concurrent writers on a new table, and say which committed and why.

    The result is the same each time: Delta pauses the first writer when it has read and written its files,
    before its commit. The second begins at the same version and commits. Then the first goes on.

    Args:
        folder: The folder in which a new folder with the table is made.
        name: A name from `writers.SCENARIOS`.
        spark: The session; None for the session of `get_spark()`.

    Raises:
        InvalidArgumentError: There is no such scenario, or the folder can't be used.
        SessionError: The session's JVM can't be reached.
    """
    scenario = SCENARIOS.get(name)
    if scenario is None:
        raise InvalidArgumentError(f'"{name}" is not a story: choose one of {", ".join(SCENARIOS)}.')
    table = new_folder(folder, name)
    spark = spark or get_spark()
    make_table(spark, table)
    with quiet_errors():
        paused = PausedWriter(spark, lambda: scenario.first.run(spark, table))
        try:
            scenario.second.run(spark, table)
        finally:
            error = paused.release()
    if error is not None and not is_conflict(error):
        raise error
    expected = scenario.second.effect({*range(NUM_ROWS)})
    if error is None:
        expected = scenario.first.effect(expected)
    return Story(
        scenario,
        table,
        _attempts(scenario, TransactionLog(table), paused.num_transactions),
        None if error is None else type(error).__name__,
        ids_after=read_ids(spark, table),
        ids_expected=tuple(sorted(expected)),
    )


def _attempts(scenario: Scenario, log: TransactionLog, num_transactions: int) -> pa.Table:
    """Return the attempts to commit version 1 or 2: from the log if committed, else from Delta's observer."""
    first = {"writer": scenario.first.name}
    _, taken, *own = log.commits().to_pylist()
    refused = not own or own[0]["read_version"] > 0
    tried = {"read_version": 0, "version": 1, "outcome": "refused" if refused else "taken"}
    attempts = [taken | {"writer": scenario.second.name, "outcome": "committed"}, first | tried]
    if own:
        attempts.append(own[0] | first | {"outcome": "committed"})
    elif num_transactions > 1:
        attempts.append(first | {"read_version": 1, "outcome": "gave up"})
    return pa.Table.from_pylist(attempts)

"""Play a scenario: two real writers, one held before its commit; told from the log."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from compaction_kit.concurrency.hold import Held
from compaction_kit.concurrency.scenarios import NUM_ROWS, SCENARIOS, Scenario, make_table
from compaction_kit.concurrency.story import ATTEMPTS, Refusal, Story
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.execute.jvm import is_conflict
from compaction_kit.log import TransactionLog
from compaction_kit.playground import new_folder, read_ids
from compaction_kit.session import get_spark, quiet_errors

_CONDITION = re.compile(r"^\[([\w.]+)\]\s*(?:\w+Exception: )?")
# What Delta adds for everybody: what to do, where to read on, the other's whole commitInfo.
_ADDED = re.compile(r"\s+(?:Please (?:re)?try|Conflicting commit:|Refer to).*", re.DOTALL)


def scenarios() -> dict[str, str]:
    """What can be played: each scenario's name, and what happens in it."""
    return {name: scenario.about for name, scenario in SCENARIOS.items()}


def play(folder: str | Path, name: str, spark: SparkSession | None = None) -> Story:
    """Have two writers meet on a table made for it, and tell who won and why.

    The same happens each time: the first writer is held by Delta itself after it has read and
    written its files and before it tries to commit; the second begins on the same version and
    commits; then the first is let go.

    Args:
        folder: Where a folder with the new table is made; another one each time.
        name: One of `scenarios()`.
        spark: The session; None for that of `get_spark()`.

    Returns:
        The commits that were tried, what became of them, and of the rows.

    Raises:
        InvalidArgumentError: There is no such scenario, or the folder can't be used.
        SessionError: The session's JVM is out of reach.
    """
    scenario = SCENARIOS.get(name)
    if scenario is None:
        raise InvalidArgumentError(f'"{name}" is no scenario: choose one of {", ".join(SCENARIOS)}.')
    table = new_folder(Path(folder), name)
    with quiet_errors():
        return _play(scenario, table, spark or get_spark())


def _play(scenario: Scenario, table: Path, spark: SparkSession) -> Story:
    make_table(spark, table)
    log = TransactionLog(table)
    before = log.segment().version
    held = Held(spark, lambda: scenario.first.run(spark, table))
    try:
        scenario.second.run(spark, table)
    finally:
        error = held.release()
    if error is not None and not is_conflict(error):
        raise error
    ids = frozenset(range(NUM_ROWS))
    expected = scenario.second.effect(ids)
    if error is None:
        expected = scenario.first.effect(expected)
    return Story(
        scenario,
        table,
        _attempts(scenario, log, before, held.transactions, error),
        None if error is None else _refusal(error),
        versions=(before, log.segment().version),
        ids_before=tuple(sorted(ids)),
        ids_after=read_ids(table),
        ids_expected=tuple(sorted(expected)),
    )


def _attempts(
    scenario: Scenario,
    log: TransactionLog,
    before: int,
    transactions: list[bool],
    error: BaseException | None,
) -> pa.Table:
    """The commits tried, in order of time: those committed from the log, the first writer's others from
    what Delta's observer saw.
    """
    first, second = scenario.first.name, scenario.second.name
    taken = before + 1
    tries = [_committed(log, second, taken)]
    if error is not None:
        tries.append(_tried(first, before, taken, "refused"))
        if len(transactions) > 1:
            tries.append(_tried(first, taken, None, "gave up"))
    else:
        own = _committed(log, first, taken + 1)
        began_anew = own["read_version"] > before
        tries += [_tried(first, before, taken, "refused" if began_anew else "taken"), own]
    return pa.Table.from_pylist(tries, schema=ATTEMPTS)


def _tried(writer: str, read_version: int, version: int | None, outcome: str) -> dict[str, Any]:
    return {"writer": writer, "read_version": read_version, "version": version, "outcome": outcome}


def _committed(log: TransactionLog, writer: str, version: int) -> dict[str, Any]:
    actions = map(json.loads, log.actions(version)["fields"].to_pylist())
    info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    return _tried(writer, info["readVersion"], version, "committed") | {
        "operation": info["operation"],
        "isolation_level": info["isolationLevel"],
        "is_blind_append": info["isBlindAppend"],
    }


def _refusal(error: BaseException) -> Refusal:
    text = str(error)
    condition = _CONDITION.match(text)
    words = _ADDED.sub("", _CONDITION.sub("", text))
    return Refusal(type(error).__name__, condition[1] if condition else "", words)

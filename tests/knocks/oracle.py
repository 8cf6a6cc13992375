"""The inputs and outcomes of a case, and a judge that uses Spark and the folder instead of the kit."""

import random
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from pyspark.sql import SparkSession

from compaction_kit.errors import CompactionKitError, RunCancelled, RunFailedError, VerificationError
from compaction_kit.execute import CompactionResult
from tests import handmade

Rows = Counter[str]
STRATEGIES = ["arrow", "optimize", "rewrite"]
_COMMIT = re.compile(r"\d{20}\.json$")
# The files that Delta, Hadoop and deltalake write into a table's log.
_OF_DELTA = re.compile(
    r"\.?(\d{20}\.(json|crc|checkpoint\..*)|_last_checkpoint|_last_vacuum_info)(\.\w{8}-[\w.-]+)?(\.crc)?$"
    r"|_staged_commits|_sidecars|_commits|.*\.tmp(\.crc)?$"
)
_LEFT = re.compile(r"; (\d+) new files? \(")


class Outcome(StrEnum):
    """The outcomes of a case other than WRONG."""

    AS_PLANNED = "as planned"
    PROVED = "committed and proved"
    # A process died between the commit of OPTIMIZE or an overwrite and its proof, or an error says that a
    # commit is not proved and can't be undone.
    NOT_PROVED = "committed, not proved"
    REFUSED = "refused in a sentence"
    FAILED = "failed, table as it was"
    # Spark's own reader never returns for some damaged files, so there is nothing to compare with.
    LEFT_OUT = "left out"


class Wrong(AssertionError):
    """Something that must never happen; the message names it."""


class Case(NamedTuple):
    """The inputs of a case: the session, its own folder, and a random generator for its number."""

    spark: SparkSession
    folder: Path
    draw: random.Random


def rows_of(spark: SparkSession, table: Path, *columns: str) -> Rows:
    """Return the rows that Spark reads, as text, so that NaN equals NaN and -0.0 isn't 0.0."""
    rows = spark.read.format("delta").load(str(table)).select(*(columns or ["*"]))
    return Counter(str(tuple(row)) for row in rows.collect())


def files_in(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and mtime, by path, of the files in a folder that must not be changed or deleted."""
    found = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {
        str(path.relative_to(folder)): (status.st_size, status.st_mtime_ns)
        for path, status in found.items()
        if path.suffix != ".crc" and (path.parent.name != "_delta_log" or _COMMIT.match(path.name))
    }


@dataclass(frozen=True)
class Before:
    """A table before a case.

    Attributes:
        rows: The rows that Spark reads; None if Spark can't read the table.
        files: The files in the table's folder.
        outside: The files beside that folder.
    """

    table: Path
    version: int
    rows: Rows | None
    files: dict[str, tuple[int, int]]
    outside: dict[str, tuple[int, int]]

    @classmethod
    def of(cls, table: Path, rows: Rows | None) -> "Before":
        return cls(table, latest(table), rows, files_in(table), _beside(table))

    def check(self, found: Rows | None, expected: Rows | None) -> None:
        """Check that the rows are the expected ones, and that files changed only as they may.

        Nothing outside was touched, no earlier file is gone, and the log is complete and written by Delta.
        """
        if found != expected and found is not None and expected is not None:
            lost, more = expected - found, found - expected
            some = [*lost, *more][:3]
            raise Wrong(f"{lost.total()} rows lost, {more.total()} rows more, such as {some}")
        now = files_in(self.table)
        _never(self.files.keys() - now.keys(), "files are gone")
        _never({path for path in self.files if now[path] != self.files[path]}, "files were changed")
        _never(_beside(self.table).items() ^ self.outside.items(), "touched outside of the table")
        log = self.table / "_delta_log"
        names = {str(path.relative_to(log)) for path in log.rglob("*")}
        _never({name for name in names if not _OF_DELTA.match(name)}, "strange files in the log")
        versions = sorted(int(name[:20]) for name in names if _COMMIT.match(name))
        _never(set(range(versions[-1] + 1)) - set(versions), "versions are missing")
        for version in range(self.version + 1, versions[-1] + 1):
            (info,) = handmade.actions_of(self.table, version, "commitInfo")
            engine = info.get("engineInfo", "") + info.get("clientVersion", "")
            if "Delta-Lake/" not in engine and "delta-rs" not in engine:
                raise Wrong(f"version {version} was not written by Delta, but by {engine!r}")

    def left(self) -> set[str]:
        """Return the new data files that no new commit adds."""
        new = {path for path in files_in(self.table) if path not in self.files and path.endswith(".parquet")}
        return new - {unquote(add["path"]) for add in self.new_actions("add")}

    def new_actions(self, kind: str) -> list[handmade.Action]:
        versions = range(self.version + 1, latest(self.table) + 1)
        return [action for version in versions for action in handmade.actions_of(self.table, version, kind)]

    def of_kit(self) -> list[handmade.Action]:
        """Return the commitInfo of the commits that the kit has made since then."""
        infos = self.new_actions("commitInfo")
        return [info for info in infos if "compaction_kit" in (info.get("userMetadata") or "")]


def judge(found: CompactionResult | BaseException, before: Before, is_alone: bool = True) -> Outcome:
    """Return the outcome of a run; `is_alone` if no other writer leaves files or makes commits like it."""
    if isinstance(found, BaseException):
        return judge_error(found, before, is_alone)
    return judge_result(found)


def judge_result(result: CompactionResult) -> Outcome:
    """Return the outcome of a run that returned a result."""
    if result.versions and result.verified is not True:
        raise Wrong(f"the commit of {result.versions} is not proved")
    return Outcome.AS_PLANNED if result.as_planned else Outcome.PROVED


def judge_error(error: BaseException, before: Before, is_alone: bool = True) -> Outcome:
    """Return the outcome of a run that raised an error."""
    # Use the raw message: str() joins its lines, and no name in these cases contains line breaks.
    told = BaseException.__str__(error)
    if not isinstance(error, CompactionKitError) or "\n" in told:
        raise Wrong(f"{type(error).__name__} is no sentence: {told[:2_000]!r}") from error
    is_failure = isinstance(error, (RunFailedError, RunCancelled, VerificationError))
    if is_alone:
        named = _LEFT.search(told)
        left = before.left()
        if is_failure and len(left) != (int(named[1]) if named else 0):
            raise Wrong(f"{sorted(left)} are left, and the error says: {told}")
        if ("nothing was" in told or not is_failure) and "committed, as version" not in told:
            _never({str(info) for info in before.of_kit()}, f"commits in spite of {told!r}")
    if "committed, as version" in told and "its content is the same" in told:
        return Outcome.PROVED
    if re.search(r"\b(is|are) committed and not proved", told):
        return Outcome.NOT_PROVED
    return Outcome.FAILED if is_failure else Outcome.REFUSED


def latest(table: Path) -> int:
    """Return the last version, by the names in the log."""
    return max(int(path.stem) for path in (table / "_delta_log").glob("*.json") if path.stem.isdigit())


def _beside(table: Path) -> dict[str, tuple[int, int]]:
    found = files_in(table.parent)
    return {path: entry for path, entry in found.items() if not path.startswith(f"{table.name}/")}


def _never(found: Collection[object], what: str) -> None:
    if found:
        raise Wrong(f"{what}: {sorted(map(str, found))[:5]}")

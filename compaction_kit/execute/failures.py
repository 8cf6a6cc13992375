"""Translate what Spark, Delta or the disk raised into errors of this package, one sentence each."""

import re
from typing import Protocol

from compaction_kit.errors import (
    CompactionKitError,
    ConflictError,
    ReadOnlyTableError,
    RunFailedError,
    StalePlanError,
    VerificationError,
)
from compaction_kit.execute.delta import is_conflict

_CAUSE = re.compile(r"^(?:Caused by)?: (?:[\w.$]+: )?(.*\S)", re.MULTILINE)
# What Python raised in a worker, after the lines of its stack; Spark 3.5 writes its exception's name first.
_RAISED = re.compile(
    r"^(?:.*: )?Traceback \(most recent call last\):\n(?:[ \t].*\n)*(?:\w+\.)*(\S.*)", re.MULTILINE
)
# A path or URI of a file.
_FILE = re.compile(r"(?:^|[\s'\"(])(?:[a-z][a-z0-9+.-]*:)?/+[^\s/]+/")
_CODE = re.compile(r"\s*SQLSTATE: \w+$")
_NO_PERMISSION = ("Permission denied", "AccessDenied", "Read-only file system")
# A refused read isn't a missing permission to write.
_NOT_READ = " can't be read: "
_NO_SPACE = ("No space left on device", "Disk quota exceeded")
# The message for a worker that the system has killed.
_WORKER_DIED = "Python worker exited unexpectedly"
# That of gRPC for a call that got no answer, after PySpark's client has tried for minutes.
_CALL_FAILED = "StatusCode.UNAVAILABLE"


class BinFailed(Exception):
    """A bin could not be rewritten; the message says why."""


class TableChanged(Exception):
    """The table isn't as it was planned any more; the message says what changed."""


class ContentDiffers(Exception):
    """Files have other rows than those that they replace; the message says which, `advice` what to do."""

    def __init__(self, evidence: str, advice: str = "report this"):
        super().__init__(evidence)
        self.advice = advice


class NotCompared(Exception):
    """A proof reader didn't find equal content; the message says why."""


class _Plan(Protocol):
    @property
    def version(self) -> int: ...


def stale(plan: _Plan, latest: int) -> StalePlanError:
    """Make the error of a plan whose table has a later version by now."""
    return StalePlanError(
        f"The plan was made at version {plan.version} and the table is at {latest}: "
        "make a new plan; nothing was changed."
    )


def translate(
    error: Exception, table: str, outcome: str, others: str = "Another writer changed the table"
) -> CompactionKitError:
    """Make the error to raise instead of another.

    Args:
        error: What was raised.
        table: The table's folder, for the message.
        outcome: What became of the table, as a part of a sentence.
        others: What other writers did, for a conflict; see `commits.other_commits`.
    """
    text = str(error)
    if isinstance(error, ContentDiffers):
        return VerificationError(f"{text}; {outcome}: {error.advice}.")
    if is_conflict(error):
        return ConflictError(f"{others}, so Delta refused the commit: make a new plan; {outcome}.")
    if isinstance(error, TableChanged):
        return ConflictError(f"{others}, {text}: make a new plan; {outcome}.")
    if any(sign in text for sign in _NO_PERMISSION) and _NOT_READ not in text:
        return ReadOnlyTableError(
            f"{table} could not be written to: get write permission and run the plan again; {outcome}."
        )
    if any(sign in text for sign in _NO_SPACE):
        return RunFailedError(f"The disk of {table} is full: free space and run the plan again; {outcome}.")
    if _WORKER_DIED in text:
        return RunFailedError(
            "A Python worker died, as it does when memory runs out: free memory and run the plan again; "
            f"{outcome}."
        )
    if _CALL_FAILED in text:
        return RunFailedError(
            "The server of Spark Connect can't be reached any more: look at the table's history for what it "
            f"still did before you run the plan again; so far, {outcome}."
        )
    return RunFailedError(f"The run failed, {outcome}: {reason_of(error)}")


def reason_of(error: BaseException) -> str:
    """Return the line of a stack trace that says what was wrong.

    Python's own error in a worker, else the innermost cause that names a file, else the outermost of Spark's
    error classes, else the innermost cause.
    """
    text = str(error) or type(error).__name__
    causes = _RAISED.findall(text) or _CAUSE.findall(text)
    with_file = [cause for cause in causes if _FILE.search(cause)][-1:]
    of_spark = [cause for cause in causes if cause.startswith("[")]
    found = with_file or of_spark or causes[-1:] or text.strip().splitlines()
    return _CODE.sub("", found[0]) if found else "it did not say why"

"""Translate errors of Spark, Delta or the disk into errors of this package, one sentence each."""

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from compaction_kit import errors
from compaction_kit.execute.delta import is_conflict
from compaction_kit.session import JAVA_ENDED, has_java_ended, is_interrupted
from compaction_kit.storage import Store

# Errors that a call of Spark raises, including those after its Java process has ended.
SPARK_FAILURES = (PySparkException, Py4JError)

_NO_PERMISSION = ("Permission denied", "AccessDenied", "Read-only file system")
_GONE = ("No such file or directory", "FILE_NOT_EXIST", "FileNotFoundException")
# Parts of error messages, and the sentence that replaces such a message.
_SENTENCES = {
    ("No space left on device", "Disk quota exceeded"): (
        "The disk of {table} is full: free space and run the plan again; {outcome}."
    ),
    # For a worker that the system has killed.
    ("Python worker exited unexpectedly",): (
        "A Python worker died, as it does when memory runs out: free memory and run the plan again; "
        "{outcome}."
    ),
    # From gRPC, for a call without an answer, after PySpark's client has tried for minutes.
    ("StatusCode.UNAVAILABLE",): (
        "The server of Spark Connect can't be reached any more: look at the table's history for what it "
        "still did before you run the plan again; so far, {outcome}."
    ),
}


class BinFailed(Exception):
    """A bin could not be rewritten; the message says why."""


class TableChanged(Exception):
    """The table has changed since it was planned; the message says how."""


class ContentDiffers(Exception):
    """New files have other rows than the files that they replace; `advice` says what to do."""

    def __init__(self, evidence: str, advice: str = "report this"):
        super().__init__(evidence)
        self.advice = advice


class NotCompared(Exception):
    """A proof reader didn't find equal content; the message says why."""


def check_writable(store: Store, *folders: str) -> None:
    """Raise ReadOnlyTableError if one of a table's folders can't be written to, as far as that is known."""
    for folder in folders:
        if not store.may_write(folder):
            raise errors.ReadOnlyTableError(
                f"The folder {store.place(folder)} can't be written to: get write permission and run it "
                "again; nothing was changed."
            )


def translate(
    error: Exception, table: str, outcome: str, others: str = "Another writer changed the table"
) -> errors.CompactionKitError:
    """Return the error of this package to raise instead of `error`.

    `outcome` says what became of the table, as a part of a sentence; `others` says what other writers did, if
    there was a conflict (see `commits.other_commits`).
    """
    text = str(error)
    if is_interrupted(error):
        return errors.RunCancelled(f"The run was cancelled: {outcome}.")
    if has_java_ended(error):
        return errors.RunFailedError(f"{JAVA_ENDED}; {outcome}.")
    if isinstance(error, ContentDiffers):
        return errors.VerificationError(f"{text}; {outcome}: {error.advice}.")
    if is_conflict(error) or isinstance(error, TableChanged):
        why = text if isinstance(error, TableChanged) else "so Delta refused the commit"
        return errors.ConflictError(f"{others}, {why}: make a new plan; {outcome}.")
    # A refused read is not a missing write permission.
    if any(sign in text for sign in _NO_PERMISSION) and " can't be read: " not in text:
        return errors.ReadOnlyTableError(
            f"{table} may not be read or written to ({errors.reason_of(error)}): get permission and run the "
            f"plan again; {outcome}."
        )
    for signs, sentence in _SENTENCES.items():
        if any(sign in text for sign in signs):
            return errors.RunFailedError(sentence.format(table=table, outcome=outcome))
    is_gone = any(sign in text for sign in _GONE)
    advice = "; table.versions() says which versions have all their files" if is_gone else ""
    return errors.RunFailedError(f"The run failed, {outcome}: {errors.reason_of(error)}{advice}.")

"""The errors of the package, one class for each kind.

Every message is a sentence with the wrong value and what to do. The table is unchanged when an error
is raised, unless the docstring of its class says otherwise.
"""

import os
import re
import traceback
from itertools import takewhile

import pyarrow as pa

# Errors that parsing a damaged file raises; RecursionError if JSON is nested thousands deep.
DAMAGE = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, pa.ArrowException,
)  # fmt: skip
_MOST_SHOWN, _MOST_OF_LINE = 200, 300
# The text of an error without a message; "None" in PySpark 3.5.
_NO_MESSAGE = ("", "None")
# The text that py4j puts before Java's error.
_PY4J = re.compile(r"^An error occurred while calling .*\n: (?:[\w.$]+: )?")
_CAUSE = re.compile(r"^(?:Caused by)?: (?:[\w.$]+: )?(.*\S)", re.MULTILINE)
# Python's error in a worker, after the lines of its stack; in Spark 3.5 after Spark's exception name.
_RAISED = re.compile(
    r"^(?:.*: )?( *)Traceback \(most recent call last\):\n(?:\1[ \t].*\n)*\1(?:\w+\.)*(\S.*)", re.MULTILINE
)
# A path or URI of a file.
_FILE = re.compile(r"(?:^|[\s'\"(])(?:[a-z][a-z0-9+.-]*:)?/+[^\s/]+/")
# From here on, Spark's messages hold only codes, positions and plans.
_CODES = re.compile(r"\.?\s*SQLSTATE:.*", re.DOTALL)
# The name of the view with which PySpark replaces {table} in SQL.
_VIEW = re.compile(r"`?_pyspark_[0-9a-f]{32}`?")


def show_value(value: object) -> str:
    """Format a value for an error message: text in quotes, on one line of at most 200 characters."""
    return f'"{one_line(value)}"' if isinstance(value, str) else one_line(repr(value))


def first_line(error: Exception) -> str:
    """Return an error's shortened first line, or its class; for Java the outermost, unlike `reason_of`."""
    text = _PY4J.sub("", str(error)).strip()
    line = type(error).__name__ if text in _NO_MESSAGE else text.splitlines()[0].rstrip(".")
    return line if len(line) <= _MOST_OF_LINE else f"{line[:_MOST_OF_LINE]} …"


def shortened(text: str, most: int) -> str:
    """Cut a text to at most `most` characters, the last of them "…"."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def one_line(text: str) -> str:
    """Put text on one line of at most 200 characters, the last of them "…" if it is cut."""
    return shortened(" ".join(text.split()), _MOST_SHOWN)


def reason_of(error: BaseException) -> str:
    """Return the line of an error of Spark or Java that says what was wrong, without full stop."""
    # The order: Python's error in a worker, the innermost cause with a file, Spark's outermost, innermost.
    text = type(error).__name__ if str(error) in _NO_MESSAGE else str(error)
    causes = [line for _, line in _RAISED.findall(text)] or _CAUSE.findall(text)
    with_file = [cause for cause in causes if _FILE.search(cause)][-1:]
    of_spark = [cause for cause in causes if cause.startswith("[")]
    line = (with_file or of_spark or causes[-1:] or text.strip().splitlines() or ["it did not say why"])[0]
    # After a colon, the next lines name the columns or the types.
    if line.endswith(":"):
        more = re.split(r"SQLSTATE|\n\tat |\nCaused by", text.partition(line)[2])[0]
        line = " ".join([line, *more[:_MOST_OF_LINE].split()])
    return _VIEW.sub("{table}", _CODES.sub("", line)).rstrip(".")


class CompactionKitError(Exception):
    """Base class of all errors that this package raises, without Java's stack traces.

    `__context__` has the error of Spark, Delta, a library or the caller's own code.
    """

    def __str__(self) -> str:
        # Names of tables, columns and files, and SQL, may have line breaks.
        return " ".join(super().__str__().splitlines())

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython prints: the caller's own lines, and the sentence."""
        found = traceback.extract_tb(self.__traceback__)
        frames = [frame for frame in found if f"{os.sep}IPython{os.sep}" not in frame.filename]
        package = os.path.dirname(__file__)
        callers = takewhile(lambda frame: not frame.filename.startswith(package), frames)
        lines = [line.rstrip() for line in traceback.format_list(callers)]
        return ["Traceback (most recent call last):", *lines, f"{type(self).__name__}: {self}"]


class InvalidArgumentError(CompactionKitError, ValueError):
    """An argument that can't be used: a size, a predicate, a version out of range."""


class TableNotFoundError(CompactionKitError, FileNotFoundError):
    """Nothing exists at the path, or this process may not look there, or no table has that name."""


class StorageError(CompactionKitError, OSError):
    """A table's storage can't be reached, or refuses access: network, credentials, permissions."""


class NotADeltaTableError(CompactionKitError):
    """The path exists but holds no Delta table."""


class EmptyTableError(CompactionKitError):
    """The table has no live file, so there is nothing to compact."""


class NotASinkLogError(CompactionKitError):
    """The path exists but holds no log of a file sink or a file source."""


class CorruptLogError(CompactionKitError):
    """A version can't be read: a commit is missing, a file is damaged, or there is no protocol action."""


class UnsupportedTableError(CompactionKitError):
    """The table uses a feature that this package can't handle safely."""


class ReadOnlyTableError(CompactionKitError, PermissionError):
    """The table's folder can't be written to, or one of its files can't be read."""


class StalePlanError(CompactionKitError):
    """The table was changed, or the plan was run, since the plan was made."""

    @classmethod
    def at(cls, planned: int, latest: int) -> "StalePlanError":
        """Return the error for a plan if the table has a later version now, or a new one of that number."""
        changed = f"The plan was made at version {planned} and the table is at {latest}"
        if latest == planned:
            changed = f"The table was created again since the plan was made, with another version {latest}"
        return cls(f"{changed}: make a new plan; nothing was changed.")


class ConflictError(CompactionKitError):
    """Another writer committed a conflicting change first; the message says what it changed."""


class RunFailedError(CompactionKitError):
    """Spark or Delta failed during a run; the table stays at its last committed version."""


class RunCancelled(CompactionKitError):
    """The run was cancelled; the message says what was committed."""


class VerificationError(CompactionKitError):
    """The content before and after differs; the message says whether the table was restored."""


class SessionError(CompactionKitError):
    """No Spark session can read Delta, and none could be started."""


class MissingDependencyError(CompactionKitError, ImportError):
    """An optional package that is needed is not installed."""

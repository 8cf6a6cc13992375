"""What can go wrong: one class a kind, one sentence a case.

Every message says what is wrong, with the value, and what to do. Nothing has
been changed when one of these is raised, unless its docstring says otherwise.
"""

_MOST_SHOWN = 200


def show_value(value: object) -> str:
    """Write a value for an error: text in quotes, all in one line of at most 200 characters."""
    return one_line(f'"{value}"' if isinstance(value, str) else repr(value))


def one_line(text: str) -> str:
    """Text in one line of at most 200 characters."""
    return " ".join(text.split())[:_MOST_SHOWN]


class CompactionKitError(Exception):
    """Any error that this package raises on purpose; catch it to catch them all."""


class InvalidArgumentError(CompactionKitError, ValueError):
    """An argument that can't be used: a size, a predicate, a version out of range."""


class TableNotFoundError(CompactionKitError, FileNotFoundError):
    """Nothing exists at the path, or no table has that name."""


class NotADeltaTableError(CompactionKitError):
    """The path exists and holds no Delta table."""


class EmptyTableError(CompactionKitError):
    """The table has no live file, so there is nothing to compact."""


class NotASinkLogError(CompactionKitError):
    """The path exists and holds no log of a file sink or a file source."""


class CorruptLogError(CompactionKitError):
    """A log can't be read back into a state: a gap, a damaged file, no protocol."""


class UnsupportedTableError(CompactionKitError):
    """The table needs something that this package does not know how to read safely."""


class ReadOnlyTableError(CompactionKitError, PermissionError):
    """The table's folder can't be written to."""


class StalePlanError(CompactionKitError):
    """The table has moved on, or the plan has run, since the plan was made."""


class ConflictError(CompactionKitError):
    """Another writer won; the message says what it changed."""


class RunFailedError(CompactionKitError):
    """Spark or Delta gave up during a run; the table stays at its last committed version."""


class RunCancelled(CompactionKitError):
    """The run was cancelled; the message says what was committed."""


class VerificationError(CompactionKitError):
    """The content before and after differs; the message says whether the table was restored."""


class SessionError(CompactionKitError):
    """No Spark session that reads Delta could be had."""


class MissingDependencyError(CompactionKitError, ImportError):
    """An optional package is needed and not installed."""

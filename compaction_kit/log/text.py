"""The files of a log that are JSON: a line an action."""

import json
from pathlib import Path
from typing import Any

from compaction_kit.errors import CorruptLogError
from compaction_kit.log.checksums import read_checked
from compaction_kit.log.names import LOG_FOLDER, LogFile


def commit_actions(table: Path, file: LogFile) -> list[dict[str, Any]]:
    """Every action of one commit, as the log writes it: an object with the action's name as its key.

    Raises:
        CorruptLogError: The file is damaged or empty.
    """
    lines = lines_of(read_log_file(table, file))
    try:
        # At once: that takes half the time.
        actions = json.loads(b"[" + b",\n".join(lines) + b"]")
    except ValueError as error:
        raise damaged(file, error) from error
    if len(actions) != len(lines) or not all(isinstance(action, dict) for action in actions):
        raise damaged(file, ValueError("a line is no JSON object"))
    return actions


def read_log_file(table: Path, file: LogFile) -> bytes:
    """The bytes of a file of the log in JSON.

    Raises:
        CorruptLogError: It can't be read, or is empty.
    """
    try:
        data = read_checked(table / LOG_FOLDER / file.name)
    except OSError as error:
        raise CorruptLogError(f"The log file {file.name} can't be read: {error.strerror}.") from error
    if not data.strip():
        raise CorruptLogError(f"The log file {file.name} is empty: restore it from a backup.")
    return data


def damaged(file: LogFile, error: Exception) -> CorruptLogError:
    """The error for a file of the log that doesn't parse."""
    return CorruptLogError(
        f"The log file {file.name} is damaged ({first_line(error)}): restore it from a backup."
    )


def first_line(error: Exception) -> str:
    """The first line of an error, or its class's name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def lines_of(text: bytes) -> list[bytes]:
    """The lines of a text that aren't blank."""
    return [line for line in text.split(b"\n") if line.strip()]

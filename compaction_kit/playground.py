"""Tables that a lesson makes: in folders of their own, never within anybody's table."""

import re
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.log import TransactionLog
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.log.paths import places


def new_folder(within: Path, name: str) -> Path:
    """Make an empty folder.

    Args:
        within: The folder to make it in; made as well if it isn't there.
        name: What it is for; a number is added where there is one of that name.

    Returns:
        Its whole path.

    Raises:
        InvalidArgumentError: It would be within a Delta table, or can't be made.
    """
    place = within.resolve()
    for folder in (place, *place.parents):
        if (folder / LOG_FOLDER).is_dir():
            raise InvalidArgumentError(
                f"{within} is within the Delta table {folder}, which is left alone: give another folder."
            )
    word = re.sub(r"\W+", "-", name).strip("-").lower()
    try:
        place.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            folder = place / (word if number == 1 else f"{word}-{number}")
            try:
                folder.mkdir()
                return folder
            except FileExistsError:
                continue
    except OSError as error:
        raise InvalidArgumentError(
            f"No folder can be made in {within} ({error.strerror}): give another one."
        ) from error
    raise AssertionError("unreachable")


def read_ids(table: Path) -> tuple[int, ...]:
    """The values of the column id, sorted, at the latest version of a table without deletion vectors."""
    paths = places(TransactionLog(table).snapshot().live["path"], table).to_pylist()
    columns = [pq.ParquetFile(table / path).read(["id"])["id"] for path in paths]
    return tuple(sorted(value for column in columns for value in column.to_pylist()))

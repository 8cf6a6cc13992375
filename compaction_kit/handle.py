"""What a table is reached by: one object that every part of the kit takes."""

import re
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit.errors import NotADeltaTableError, TableNotFoundError
from compaction_kit.log import TransactionLog
from compaction_kit.log.listing import LOG_FOLDER, list_log
from compaction_kit.retention import GUARD
from compaction_kit.session import active_spark, get_spark
from compaction_kit.sql import plain_path
from compaction_kit.storage import local_path
from compaction_kit.times import now, to_instant

_CATALOG_NAME = re.compile(r"\w+(\.\w+){0,2}")


@dataclass(frozen=True, eq=False)
class Handle:
    """A table's name, folder, log and session.

    Pickled, it is its name and its folder: whoever loads it has another session.

    Attributes:
        name: The name that it was opened by.
        path: Its folder, without symbolic links.
        given: The session that it was opened with, if any.
    """

    name: str
    path: Path
    given: SparkSession | None = field(default=None, repr=False)

    @cached_property
    def log(self) -> TransactionLog:
        """The table's log."""
        return TransactionLog(self.path)

    @cached_property
    def spark(self) -> SparkSession:
        """The session that works on the table; started when first asked for."""
        return self.given or get_spark()

    @property
    def session(self) -> SparkSession | None:
        """The session if one runs; none is started."""
        return vars(self).get("spark") or self.given or active_spark()

    def conf(self, key: str) -> str | None:
        """The value of a setting of the session; None without one, or without a session."""
        session = self.session
        return None if session is None else session.conf.get(key, None)

    @property
    def has_guard(self) -> bool:
        """Whether Delta refuses to read versions older than the retention of deleted files."""
        return (self.conf(GUARD) or "true").lower() == "true"

    def instant(self, time: datetime | str | None, name: str = "at") -> datetime:
        """The instant that a time stands for, in the session's zone; now for None.

        Raises:
            InvalidArgumentError: It is no time.
        """
        return now(self.session) if time is None else to_instant(time, name, self.session)

    def __reduce__(self) -> tuple[type["Handle"], tuple[str, Path]]:
        return Handle, (self.name, self.path)


def open_handle(name: str | Path, spark: SparkSession | None = None) -> Handle:
    """Find a Delta table by a path or a catalog's name; see `open_table`."""
    path = _resolve(str(name), spark or active_spark())
    if not path.exists():
        raise TableNotFoundError(f"No table at {name}: the path does not exist; check the spelling.")
    if not (path / LOG_FOLDER).is_dir():
        raise NotADeltaTableError(
            f"{name} is not a Delta table: it has no {LOG_FOLDER} folder; name the folder that holds one."
        )
    if not list_log(path):
        raise NotADeltaTableError(f"{name} is not a Delta table: its {LOG_FOLDER} folder is empty.")
    return Handle(str(name), path.resolve(), spark)


def _resolve(name: str, spark: SparkSession | None) -> Path:
    path = local_path(name)
    if spark is not None and _CATALOG_NAME.fullmatch(name) and not path.exists():
        try:
            location = spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["location"]
        except PySparkException as error:
            raise TableNotFoundError(
                f"No table {name}: there is no such path, and the session's catalog has no such Delta table."
            ) from error
        return local_path(plain_path(location))
    return path

"""Find and hold the name, store, log and Spark session of one table."""

import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit import errors
from compaction_kit.active import active_spark
from compaction_kit.compat import enforces_retention
from compaction_kit.log import TransactionLog
from compaction_kit.log.listing import LOG_FOLDER, look_at_log
from compaction_kit.log.protocol import check_not_managed
from compaction_kit.session import get_spark, quiet_errors
from compaction_kit.sql import identifiers, name_parts, plain_path
from compaction_kit.storage import S3_SCHEMES, Store, open_store, path_text
from compaction_kit.times import now, to_instant


@dataclass(eq=False)
class Handle:
    """Name, store and log of one table, and the session that was given or started for it.

    `proved` has the runs that were proved after their commit, whose userMetadata can't say so.
    """

    name: str
    store: Store
    kept: SparkSession | None = field(default=None, repr=False)
    proved: set[str] = field(default_factory=set, repr=False)
    log: TransactionLog = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.log = TransactionLog(self.store)

    def __reduce__(self) -> tuple[type, tuple[str, Store]]:
        # For copy.deepcopy and pickle: a session can't be copied.
        return type(self), (self.name, self.store)

    @property
    def folder_name(self) -> str:
        """The name of the table's folder, without its path."""
        return self.store.root.rpartition("/")[2]

    @property
    def uri(self) -> str:
        """The table's folder, in the form for Spark's readers and SQL."""
        return self.store.uri()

    def listed(self) -> "Handle":
        """Return a handle with the log as it is now; see `TransactionLog.listed`."""
        one = replace(self)
        one.log = self.log.listed()
        return one

    @property
    def spark(self) -> SparkSession:
        """The session that works on the table; started at the first use, or if it was stopped."""
        if self.kept is None or active_spark(self.kept) != self.kept:
            self.kept = get_spark(s3=self._scheme in S3_SCHEMES)
        return self.kept

    @property
    def session(self) -> SparkSession | None:
        """The session if one is running; none is started."""
        return active_spark(self.kept)

    def conf(self, key: str) -> str | None:
        """Return the value of a session setting; None if it isn't set, or without a session."""
        session = self.session
        return None if session is None else session.conf.get(key, None)

    def goes_by(self, rule: str) -> bool:
        """Return whether Delta applies a rule of `retention`, GUARD or IGNORE_RETAIN, as by default."""
        return enforces_retention(self.session) and (self.conf(rule) or "true").lower() == "true"

    @property
    def commit_risk(self) -> str | None:
        """A sentence that says why one of two commits could be lost; None if none can.

        Delta's default for S3, S3SingleDriverLogStore, coordinates only the writers of one driver.
        """
        confs = (f"spark.delta.logStore.{self._scheme}.impl", "spark.delta.logStore.class")
        if self._scheme not in S3_SCHEMES or self.session is None or any(map(self.conf, confs)):
            return None
        return (
            "On S3 Delta coordinates only the writers of one Spark driver: if another driver commits at the "
            "same moment, one of the two commits is lost. Let nothing else write meanwhile, or set "
            f"{confs[0]} in all sessions to a log store such as io.delta.storage.S3DynamoDBLogStore."
        )

    @property
    def _scheme(self) -> str:
        return self.store.uri().partition(":")[0]

    def warn_of_commit_risk(self) -> None:
        """Warn before a commit if commits can be lost; see `commit_risk`."""
        if (risk := self.commit_risk) is not None:
            warnings.warn(risk, stacklevel=3)

    def instant(self, time: datetime | str | None, name: str = "at") -> datetime:
        """Return a time as an instant in the session's zone, now for None; see `to_instant`."""
        return now(self.session) if time is None else to_instant(time, name, self.session)


def open_handle(name: str | Path, spark: SparkSession | None = None) -> Handle:
    """Find a Delta table by a path or a catalog's name; see `open_table`."""
    store = _resolve(name := path_text(name), active_spark(spark))
    try:
        has_files, has_staged = look_at_log(store)
    except errors.TableNotFoundError:
        if store.status() is None:
            raise errors.TableNotFoundError(
                f"No table at {name}: the path does not exist; check the spelling."
            ) from None
        if not store.is_folder(LOG_FOLDER):
            raise errors.NotADeltaTableError(
                f"{name or 'The current folder'} is not a Delta table: it has no {LOG_FOLDER} folder; "
                "name the folder that holds one."
            ) from None
        raise
    if not has_files:
        raise errors.NotADeltaTableError(f"{name} is not a Delta table: its {LOG_FOLDER} folder is empty.")
    handle = Handle(name, store, spark)
    if has_staged:
        # Raises an error if the catalog may know newer versions than the log, so that no old one is shown.
        with suppress(errors.CorruptLogError):
            handle.log.snapshot(keep=False)
    return handle


@quiet_errors()
def _resolve(name: str, spark: SparkSession | None) -> Store:
    store = open_store(name)
    parts = name_parts(name)
    if spark is None or not 1 <= len(parts) <= 3 or store.status() is not None:
        return store
    try:
        detail = spark.sql(f"DESCRIBE DETAIL {identifiers(spark, parts)}").collect()[0]
    except PySparkException:
        raise errors.TableNotFoundError(
            f"No table {name}: there is no such path, and the session's catalog has no such Delta table."
        ) from None
    except Py4JJavaError as error:
        raise errors.UnsupportedTableError(
            f"There is no path {name}, and the session's catalog can't be asked for such a table: "
            f"{errors.first_line(error)}; check the settings spark.sql.catalog.{parts[0]}."
        ) from None
    check_not_managed(detail["tableFeatures"] or ())
    return open_store(plain_path(detail["location"]))

"""Run a plan: check it, let Delta vacuum just that, compare what went with what was planned."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit.errors import InvalidArgumentError, RunCancelled
from compaction_kit.execute.failures import translate
from compaction_kit.execute.jobs import WorkCancelled, run_cancellable, session_confs
from compaction_kit.execute.jvm import check_jvm
from compaction_kit.execute.work import ProgressBar
from compaction_kit.history.expiry import to_millis
from compaction_kit.history.readable import read_readability
from compaction_kit.log import TransactionLog
from compaction_kit.log.metadata import Metadata
from compaction_kit.session import quiet_errors
from compaction_kit.text import format_count
from compaction_kit.times import millis, show_time
from compaction_kit.vacuum.compare import Before, compare, still_there
from compaction_kit.vacuum.inventory import vacuum_statement
from compaction_kit.vacuum.lite import last_commit
from compaction_kit.vacuum.plan import VacuumPlan
from compaction_kit.vacuum.progress import VacuumProgress, Watcher
from compaction_kit.vacuum.result import VacuumResult
from compaction_kit.vacuum.sorting import LITE
from compaction_kit.vacuum.stale import check_fresh

_PARALLEL_DELETE = "spark.databricks.delta.vacuum.parallelDelete.enabled"
_LITE = "spark.databricks.delta.vacuum.lite.enabled"


def run_vacuum(
    table: Path,
    log: TransactionLog,
    get_spark: Callable[[], SparkSession],
    plan: VacuumPlan,
    guard: bool = True,
    parallel_delete: bool | None = None,
    progress: bool | Callable[[VacuumProgress], None] | None = None,
) -> VacuumResult:
    """Do what a plan says; see `VacuumPlan.run` for the arguments and errors.

    Args:
        table: The table's folder.
        log: Its log.
        get_spark: Gives the session.
        plan: The plan.
        guard: Whether the session has Delta's guard on.
        parallel_delete: Whether tasks delete.
        progress: Whether, or to whom, to report.
    """
    if parallel_delete not in (None, True, False):
        raise InvalidArgumentError(f"parallel_delete={parallel_delete!r} is neither True, False nor None.")
    if plan.at > datetime.now(UTC):
        raise InvalidArgumentError(
            f"The plan is a preview for {show_time(plan.at)}, which is yet to come: run it then, or "
            "make a plan without at; nothing was deleted."
        )
    on_disk = check_fresh(table, log, plan)
    before = Before(on_disk, read_readability(table, log, guard, on_disk))
    bar = ProgressBar() if progress is True else None
    watcher = Watcher(table, plan, bar or (progress if callable(progress) else _silent))
    try:
        if not plan.is_empty:
            with quiet_errors():
                _vacuum(table, log, get_spark(), plan, parallel_delete, watcher)
        watcher.look("Comparing")
        return compare(table, log, plan, before, watcher.seconds)
    finally:
        if bar is not None:
            bar.close()


def _vacuum(
    table: Path,
    log: TransactionLog,
    spark: SparkSession,
    plan: VacuumPlan,
    parallel_delete: bool | None,
    watcher: Watcher,
) -> None:
    check_jvm(
        spark,
        "a vacuum could not be watched or cancelled: use a session that has one; nothing was deleted.",
    )
    confs = {_LITE: str(_goes_on(table, log.snapshot().metadata, plan)).lower()}
    if parallel_delete is not None:
        confs[_PARALLEL_DELETE] = str(parallel_delete).lower()
    try:
        with session_confs(spark, confs), vacuum_statement(spark, table, plan) as statement:
            run_cancellable(spark, lambda: spark.sql(statement).collect(), lambda _: watcher.look())
    except (PySparkException, Py4JJavaError, OSError) as error:
        raise translate(error, table, _outcome(table, plan)) from error
    except (WorkCancelled, KeyboardInterrupt) as error:
        # What the caller's own code raised to cancel, or Ctrl-C.
        sentence = f"The vacuum was cancelled, {_outcome(table, plan)}: make a new plan for what is left."
        raise RunCancelled(sentence) from error.__cause__ or error


def _goes_on(table: Path, metadata: Metadata, plan: VacuumPlan) -> bool:
    """Whether the next VACUUM LITE may begin after the commits that this one has read.

    An inventory excludes the word LITE, and the setting has Delta note how far it came. Where the
    plan leaves files for which those commits were to be read again, it must not.
    """
    if plan.mode != LITE or plan.keep_versions or plan.retention != plan.table_retention:
        return False
    cutoffs = [millis(moment) - to_millis(plan.retention) for moment in (plan.at, datetime.now(UTC))]
    return len({last_commit(table, metadata, cutoff) for cutoff in cutoffs}) == 1


def _outcome(table: Path, plan: VacuumPlan) -> str:
    left = sum(still_there(table, plan))
    if left == plan.num_files:
        return "nothing was deleted"
    return f"{plan.num_files - left:,} of {format_count(plan.num_files, 'planned file')} are gone"


def _silent(_: object) -> None:
    """Report to nobody."""

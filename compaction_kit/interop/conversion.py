"""What both conversions share: the comparison of rows before and after, and the result."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from compaction_kit.errors import RunCancelled, VerificationError
from compaction_kit.execute.failures import translate
from compaction_kit.execute.jobs import WHOLE_FILES, WorkCancelled, run_cancellable, session_confs
from compaction_kit.query import SPARK_ERRORS
from compaction_kit.records import Result
from compaction_kit.session import quiet_errors
from compaction_kit.table import Table
from compaction_kit.text import format_count
from compaction_kit.verify import Fingerprint

if TYPE_CHECKING:
    from compaction_kit.interop.convert import ConvertPlan
    from compaction_kit.interop.to_parquet import ParquetPlan

# What works on local disks alone, in errors.
WHAT = "Conversion"


@dataclass(frozen=True, repr=False)
class ConversionResult(Result):
    """What a conversion did: the plan that was run, the new Delta table or the one that became Parquet, the
    fingerprint of the rows before and after, and where the log and dead files were moved, if they were.
    """

    plan: "ConvertPlan | ParquetPlan"
    table: Table = field(repr=False)
    fingerprint: Fingerprint
    seconds: float
    set_aside: Path | None = None

    def facts(self) -> dict[str, str]:
        """Return the folder and the proof: name and value."""
        files = format_count(self.plan.files.num_rows, "Parquet file")
        facts = {
            "folder": f"{self.table.path}, {files}",
            "content": f"identical: {self.fingerprint}, with the table's schema",
            "seconds": f"{self.seconds:.1f}",
        }
        return facts | ({"log and dead files": str(self.set_aside)} if self.set_aside else {})


def compare(
    spark: SparkSession,
    folder: Path,
    work: Callable[[], tuple[Fingerprint, Fingerprint]],
    undo: Callable[[], str],
) -> Fingerprint:
    """Run work that returns the rows' fingerprints before and after; call `undo` before raising any error."""
    try:
        with quiet_errors(), session_confs(spark, WHOLE_FILES):
            before, after = run_cancellable(spark, work, lambda: None, is_final=False)
    except BaseException as error:
        outcome = undo()
        if isinstance(error, (*SPARK_ERRORS, OSError)):
            raise translate(error, str(folder), outcome) from None
        if isinstance(error, (WorkCancelled, KeyboardInterrupt)):
            raise RunCancelled(f"The conversion was cancelled: {outcome}.") from None
        raise
    if before != after:
        raise VerificationError(
            f"The content differs: {before} {before.hash_sums} before, {after} {after.hash_sums} after; "
            f"{undo()}."
        )
    return after


def spark_reads(path: str) -> bool:
    """Return whether Spark reads a file of a folder (HadoopFSUtils.shouldFilterOutPathName)."""
    return not any(
        (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")
        for name in path.split("/")
    )

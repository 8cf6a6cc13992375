"""Make an archive of the classes that Spark and Delta load: with it, a session starts faster.

Java maps it into memory instead of reading, checking and linking 26,000 classes (JEP 350). It compares
the Java and the JARs that an archive was made with by itself, and ignores an archive of others.

python -m compaction_kit.class_archive <archive>
"""

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from compaction_kit.session import get_spark

# Of processes that use the processor only when no other wants it.
_LEAST_PRIORITY = 19


def make(archive: Path) -> None:
    """Make an archive of the classes that a small table's life needs; delete that of former JARs.

    One process at a time makes it, and others leave it to that one. An archive that is there is complete.
    """
    kept = archive.name.rpartition("-")[0]
    archive.parent.mkdir(parents=True, exist_ok=True)
    with (archive.parent / f"{kept}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        if archive.exists():
            return
        partial = archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        spark = get_spark({"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={partial}"'})
        with tempfile.TemporaryDirectory() as folder:
            _use(spark, f"{folder}/table")
            spark.stop()
        if _end_java() == 0 and partial.exists():
            for former in archive.parent.glob(f"{kept}-*.jsa"):
                former.unlink(missing_ok=True)
            partial.replace(archive)


def _use(spark: SparkSession, table: str) -> None:
    """Do what most sessions do."""
    name = f"delta.`{table}`"
    for _ in range(2):
        rows = spark.range(0, 100, 1, 2).selectExpr("id", "CAST(id % 2 AS STRING) p", "id / 7 x")
        rows.write.format("delta").mode("append").partitionBy("p").save(table)
    spark.sql(f"OPTIMIZE {name}").collect()
    spark.sql(f"DELETE FROM {name} WHERE id < 3").collect()
    spark.sql(f"VACUUM {name}").collect()
    spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF 1").collect()
    spark.sql(f"DESCRIBE HISTORY {name}").collect()
    spark.read.format("delta").load(table).groupBy("p").agg({"x": "sum"}).orderBy("p").toPandas()
    spark.sparkContext.parallelize(range(2)).map(str).collect()


def _end_java() -> int:
    """End the Java of this process, which writes the archive as it ends; return its exit code."""
    gateway = SparkContext._gateway
    assert gateway is not None
    java: subprocess.Popen[bytes] = gateway.proc  # type: ignore[attr-defined]
    gateway.shutdown()
    assert java.stdin is not None
    java.stdin.close()
    return java.wait()


if __name__ == "__main__":
    os.nice(_LEAST_PRIORITY)
    make(Path(sys.argv[1]))

"""A store that commits and whose answer is lost: Delta tries again, and finds its own commit there."""

import functools
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from compaction_kit.compat import java_class

# A log store of Delta for local disks, which stays that of one table as long as Delta has its log in memory.
_JAVA = """
import java.lang.reflect.Field;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.storage.LogStoreAdaptor;

public class Losing {
    static class Store extends io.delta.storage.HDFSLogStore {
        int left;

        Store(Configuration conf, int number) {
            super(conf);
            left = number;
        }

        public void write(Path path, Iterator lines, Boolean overwrite, Configuration conf)
                throws java.io.IOException {
            super.write(path, lines, overwrite, conf);
            if (path.getName().endsWith(".json") && !overwrite.booleanValue() && left-- > 0) {
                throw new java.nio.file.FileAlreadyExistsException(path.toString());
            }
        }
    }

    public void lose(DeltaLog log, int number) throws Exception {
        Field stores = log.store().getClass().getDeclaredField("schemeToLogStoreMap");
        stores.setAccessible(true);
        LogStoreAdaptor store = new LogStoreAdaptor(new Store(log.newDeltaHadoopConf(), number));
        ((scala.collection.mutable.Map) stores.get(log.store())).put("file", store);
    }
}
"""


def lose_answers(spark: SparkSession, table: Path, number: int = 1) -> None:
    """Lose the answers to the next commits of a table on a local disk, as the tries to make them come."""
    log = java_class(spark, "org.apache.spark.sql.delta.DeltaLog").forTable(spark._jsparkSession, str(table))
    _losing(spark).lose(log, number)


@functools.cache
def _losing(spark: SparkSession) -> Any:
    """Compile it by the compiler that Spark has for its queries."""
    compiler = java_class(spark, "org.codehaus.janino.SimpleCompiler")()
    delta_logs = getattr(java_class(spark, "org.apache.spark.sql.delta.DeltaLog$"), "MODULE$")
    compiler.setParentClassLoader(delta_logs.getClass().getClassLoader())
    compiler.cook(_JAVA)
    return compiler.getClassLoader().loadClass("Losing").newInstance()

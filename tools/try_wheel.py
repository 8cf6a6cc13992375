"""Compact a small table with the installed package, as `make dist` does for each pair of Spark and Delta."""

import sys
import tempfile
from pathlib import Path

import compaction_kit as ck

if __name__ == "__main__":
    assert Path(ck.__file__).is_relative_to(sys.prefix), f"{ck.__file__} is not of the wheel"
    with tempfile.TemporaryDirectory() as folder:
        spark = ck.get_spark()
        spark.range(1_000).repartition(20).write.format("delta").save(f"{folder}/numbers")
        result = ck.open_table(f"{folder}/numbers").plan_compaction().run()
        assert result.verified, result
        assert (result.num_files_removed, result.num_files_added) == (20, 1), result
        print(f"compaction_kit {ck.__version__} with Spark {spark.version}: {result.strategy}, verified")
        spark.stop()

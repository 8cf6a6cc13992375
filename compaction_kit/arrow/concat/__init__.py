"""Concatenate Parquet files by copying their pages, and compare what was copied.

`concatenate` runs on executors, which may lack this package: like `arrow.worker` it needs pyarrow and
NumPy alone.
"""

from compaction_kit.arrow.concat.copying import CannotConcatenate, concatenate

__all__ = ["CannotConcatenate", "concatenate"]

"""Concatenate Parquet files by copying their pages.

`concatenate` runs on executors, which may lack this package, so it needs only Python's standard library.
"""

from compaction_kit.arrow.concat.copying import CannotConcatenate, concatenate

__all__ = ["CannotConcatenate", "concatenate"]

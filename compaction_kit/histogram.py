"""Files counted and weighed by size."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class Histogram:
    """Files by size: bucket i holds sizes from edges[i] up to, not with, edges[i + 1].

    `edges` has one element more than `num_files` and `size_bytes`; all are int64.
    """

    edges: np.ndarray
    num_files: np.ndarray
    size_bytes: np.ndarray

    @classmethod
    def of(cls, sizes: np.ndarray) -> "Histogram":
        """Count sizes in bytes into buckets between powers of two."""
        if len(sizes) == 0:
            return cls(np.array([1, 2]), np.array([0]), np.array([0]))
        # A file of zero bytes is no valid Parquet file, but a log may name one.
        exponents = np.frexp(np.maximum(sizes, 1).astype(float))[1] - 1
        lowest = int(exponents.min())
        num_files = np.bincount(exponents - lowest)
        size_bytes = np.bincount(exponents - lowest, weights=sizes).astype(np.int64)
        return cls(2 ** np.arange(lowest, lowest + len(num_files) + 1), num_files, size_bytes)

    def to_arrow(self) -> pa.Table:
        """One row a bucket: min_size_bytes, max_size_bytes (exclusive), num_files, size_bytes."""
        return pa.table(
            {
                "min_size_bytes": self.edges[:-1],
                "max_size_bytes": self.edges[1:],
                "num_files": self.num_files,
                "size_bytes": self.size_bytes,
            }
        )

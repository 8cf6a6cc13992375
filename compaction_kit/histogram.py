"""Count files and bytes by size."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Histogram:
    """Files by size: bucket i counts sizes of at least edges[i] and less than edges[i + 1].

    `edges` has one element more than `num_files` and `size_bytes`; all are int64.
    """

    edges: np.ndarray
    num_files: np.ndarray
    size_bytes: np.ndarray

    @classmethod
    def of(cls, sizes: np.ndarray) -> "Histogram":
        """Count file sizes (bytes) in buckets between powers of two."""
        if len(sizes) == 0:
            return cls(np.array([1, 2]), np.array([0]), np.array([0]))
        # An empty file is not valid Parquet, but a log may list it.
        exponents = np.frexp(np.maximum(sizes, 1).astype(float))[1] - 1
        lowest = int(exponents.min())
        num_files = np.bincount(exponents - lowest)
        size_bytes = np.bincount(exponents - lowest, weights=sizes).astype(np.int64)
        return cls(2 ** np.arange(lowest, lowest + len(num_files) + 1), num_files, size_bytes)

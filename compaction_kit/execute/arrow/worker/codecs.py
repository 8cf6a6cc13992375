"""Which codec an output gets: that of the files that it replaces."""

from typing import NamedTuple

import pyarrow.parquet as pq

from compaction_kit.execute.arrow.worker.fitting import Refused


class Codec(NamedTuple):
    """What pyarrow calls a codec, the level that Spark has, and what a file's name has for it."""

    name: str
    level: int | None
    suffix: str


_SNAPPY = Codec("snappy", None, "snappy.parquet")
# By the names that pyarrow gives in footers.
_CODECS = {
    "UNCOMPRESSED": Codec("none", None, "parquet"),
    "SNAPPY": _SNAPPY,
    "GZIP": Codec("gzip", 6, "gz.parquet"),
    "ZSTD": Codec("zstd", 3, "zstd.parquet"),
    "LZ4": Codec("lz4", None, "lz4raw.parquet"),
    "BROTLI": Codec("brotli", None, "br.parquet"),
}
# Of those that footers name, pyarrow has no name for this one alone.
_NAMELESS = {"UNKNOWN": "LZ4 as Hadoop frames it"}


def codec_of(file: pq.ParquetFile) -> Codec:
    """The codec of a file's first column; Spark's default, if it has none.

    Raises:
        Refused: pyarrow doesn't write it.
    """
    if not file.num_row_groups or not file.metadata.num_columns:
        return _SNAPPY
    name = file.metadata.row_group(0).column(0).compression
    if name not in _CODECS:
        raise Refused(f"a file is compressed with {_NAMELESS.get(name, name)}")
    return _CODECS[name]

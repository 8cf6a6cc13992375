"""Proof that content is the same: an order-free fingerprint of every row, computed by Spark."""

from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

from compaction_kit.sql import quoted

READER = "Spark"
# Compared row groups that were copied, without hashing their rows.
BYTES = "bytes"
_SALT = 0x5EED


@dataclass(frozen=True)
class Fingerprint:
    """Rows, and the sums of two hashes of each row over all columns.

    Equal for equal content in whatever order and files, if the same reader read it: each has hashes of its
    own. Two tables that differ have the same one with a probability of at most about 2^-128 if Spark reads
    them, and 2^-64 if DuckDB does, which has one hash of a row and mixes it in two ways. The number of rows
    doesn't matter (RELIABILITY.md).

    Attributes:
        num_rows: How many.
        hash_sums: The sum of each hash.
        readers: What read the rows, each a part of them: "Spark", "DuckDB", or "bytes" for row groups that
            were copied and compared byte by byte; their rows have no hashes.
    """

    num_rows: int
    hash_sums: tuple[int, int]
    readers: tuple[str, ...] = field(default=(), compare=False)

    def __add__(self, other: "Fingerprint") -> "Fingerprint":
        """The fingerprint of the rows of both together."""
        (first, second), (third, fourth) = self.hash_sums, other.hash_sums
        readers = tuple(sorted({*self.readers, *other.readers}))
        return Fingerprint(self.num_rows + other.num_rows, (first + third, second + fourth), readers)

    def __sub__(self, other: "Fingerprint") -> "Fingerprint":
        """The fingerprint of the rows without those of the other, which are among them."""
        first, second = other.hash_sums
        return self + Fingerprint(-other.num_rows, (-first, -second))

    def __str__(self) -> str:
        if self.readers == (BYTES,):
            return f"{self.num_rows:,} rows, byte by byte"
        by = f", read by {' and '.join(self.readers)}" if self.readers else ""
        return f"{self.num_rows:,} rows, 2 hashes over every column{by.replace(BYTES, 'compared as bytes')}"


def fingerprint(rows: DataFrame) -> Fingerprint:
    """Compute the fingerprint of a DataFrame's rows: one Spark job that reads every column once."""
    return _fingerprint(_hashed(rows).agg(*_sums()).collect()[0])


def fingerprints(rows: DataFrame, key: Column) -> dict[str, Fingerprint]:
    """Compute the fingerprint of the rows of each value of a column of strings, likewise in one job."""
    found = _hashed(rows, key.alias("key")).groupBy("key").agg(*_sums()).collect()
    return {row["key"]: _fingerprint(row) for row in found}


def _hashed(rows: DataFrame, *more: Column) -> DataFrame:
    """Two hashes of each row over all columns, and other columns."""
    columns = [F.col(quoted(field.name)) for field in rows.schema.fields]
    kinds = [field.dataType for field in rows.schema.fields]
    values = _with_nulls(columns, kinds)
    # Both hashes have the same seed, so the second takes a salt, and the columns backwards.
    first = F.xxhash64(*values).alias("first")
    second = F.xxhash64(F.lit(_SALT), *reversed(values)).alias("second")
    return rows.select(first, second, *more)


def _sums() -> list[Column]:
    wide = "decimal(38,0)"
    return [
        F.count("*").alias("num_rows"),
        F.coalesce(F.sum(F.col("first").cast(wide)), F.lit(0)).alias("first"),
        F.coalesce(F.sum(F.col("second").cast(wide)), F.lit(0)).alias("second"),
    ]


def _fingerprint(row: Row) -> Fingerprint:
    return Fingerprint(row["num_rows"], (int(row["first"]), int(row["second"])), (READER,))


def _with_nulls(columns: list[Column], kinds: list[DataType]) -> list[Column]:
    """The values to hash for these columns, and which of them are null.

    Spark's hashes ignore nulls: without the flags (1, null) and (null, 1) would have the same.
    """
    values = [_hashable(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return values + [column.isNull() for column in columns]


def _hashable(column: Column, kind: DataType) -> Column:
    """A column in a form in which different values have different hashes.

    Spark's hashes flatten nested values without a mark where one ends, and take no maps.
    """
    if isinstance(kind, StructType):
        fields = [column[field.name] for field in kind.fields]
        return F.struct(*_with_nulls(fields, [field.dataType for field in kind.fields]))
    if isinstance(kind, ArrayType):
        items = F.transform(column, lambda item: F.struct(*_with_nulls([item], [kind.elementType])))
        return F.struct(F.size(column), items)
    if isinstance(kind, MapType):
        entries = F.transform(
            F.map_entries(column),
            lambda entry: F.struct(
                *_with_nulls([entry["key"], entry["value"]], [kind.keyType, kind.valueType])
            ),
        )
        return F.struct(F.size(column), F.array_sort(entries))
    if isinstance(kind, (DoubleType, FloatType)):
        # Hashes and most functions take -0.0 for 0.0; as text it has its sign.
        sign = F.when(column == 0, column.cast("string"))
        return F.struct(column, sign)
    return F.to_json(column) if kind.typeName() == "variant" else column

"""Proof that content is the same: an order-free fingerprint of every row, computed by Spark."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

from compaction_kit.sql import quoted
from compaction_kit.text import format_count

READER = "Spark"
# The reader of copied row groups, which compares bytes and hashes no rows.
BYTES = "bytes"
_SALT = 0x5EED
# Down to this many levels in a variant, each value is hashed with its own type.
_VARIANT_LEVELS = 3


@dataclass(frozen=True)
class Fingerprint:
    """Rows, and the sums of two hashes of each row over all columns.

    Equal content has equal fingerprints, in any order and any files, if the same reader read it: each reader
    has its own hashes. Two tables that differ have the same fingerprint with a probability of at most about
    2^-128 if Spark reads them, and 2^-64 if DuckDB does, because it computes one hash per row and mixes it in
    two ways. The number of rows doesn't matter (RELIABILITY.md).

    Attributes:
        num_rows: Number of rows.
        hash_sums: The sums of both hashes.
        readers: The readers, each of a part of the rows: "Spark", "DuckDB", or "bytes" for row groups that
            were copied and compared byte by byte; their rows have no hashes.
    """

    num_rows: int
    hash_sums: tuple[int, int]
    readers: tuple[str, ...] = field(default=(), compare=False)

    def __add__(self, other: "Fingerprint") -> "Fingerprint":
        """Return the fingerprint of the rows of both."""
        (first, second), (third, fourth) = self.hash_sums, other.hash_sums
        readers = tuple(sorted({*self.readers, *other.readers}))
        return Fingerprint(self.num_rows + other.num_rows, (first + third, second + fourth), readers)

    def __sub__(self, other: "Fingerprint") -> "Fingerprint":
        """Return the fingerprint of the rows without the rows of `other`, which must be among them."""
        first, second = other.hash_sums
        return self + Fingerprint(-other.num_rows, (-first, -second))

    def __str__(self) -> str:
        rows = format_count(self.num_rows, "row")
        if self.readers == (BYTES,):
            return f"{rows}, byte by byte"
        by = f", read by {' and '.join(self.readers)}" if self.readers else ""
        return f"{rows}, 2 hashes over every column{by.replace(BYTES, 'compared as bytes')}"


def fingerprint(rows: DataFrame) -> Fingerprint:
    """Compute the fingerprint of a DataFrame's rows: one Spark job that reads every column once."""
    values = _with_nulls(rows.schema, lambda name: F.col(quoted(name)))
    # Both hashes have the same seed, so the second one gets a salt and the columns in reverse order.
    hashes = F.xxhash64(*values), F.xxhash64(F.lit(_SALT), *reversed(values))
    sums = [F.coalesce(F.sum(one.cast("decimal(38,0)")), F.lit(0)) for one in hashes]
    ((num_rows, first, second),) = rows.agg(F.count("*"), *sums).collect()
    return Fingerprint(num_rows, (int(first), int(second)), (READER,))


def _with_nulls(struct: StructType, column_of: Callable[[str], Column]) -> list[Column]:
    """Return values to hash, and which are null: Spark's hashes of (1, null) and (null, 1) are equal."""
    values = [_hashable(column_of(field.name), field.dataType) for field in struct]
    return values + [column_of(field.name).isNull() for field in struct]


def _hashable(column: Column, kind: DataType) -> Column:
    """Return a column that hashes different values differently: Spark flattens nested ones, refuses maps."""
    if isinstance(kind, StructType):
        return F.struct(*_with_nulls(kind, column.getItem))
    if isinstance(kind, ArrayType):
        items = F.transform(column, lambda item: F.struct(_hashable(item, kind.elementType), item.isNull()))
        return F.struct(F.size(column), items)
    if isinstance(kind, MapType):
        entry = StructType().add("key", kind.keyType).add("value", kind.valueType)
        entries = F.transform(F.map_entries(column), lambda one: F.struct(*_with_nulls(entry, one.getItem)))
        return F.struct(F.size(column), F.array_sort(entries))
    if isinstance(kind, (DoubleType, FloatType)):
        # Hashes and most functions treat -0.0 as 0.0; the text has the sign.
        return F.struct(column, F.when(column == 0, column.cast("string")))
    return _typed(column, _VARIANT_LEVELS) if kind.typeName() == "variant" else column


def _typed(variant: Column, levels: int) -> Column:
    # In JSON, a date and its text are the same, so types are hashed; a whole number may be a decimal.
    types = F.regexp_replace(F.schema_of_variant(variant), r"DECIMAL\(\d+,\d+\)", "BIGINT")
    if not levels:
        return F.struct(F.to_json(variant), types)
    # If an array has values of several types, its type doesn't name them.
    fields = F.map_values(F.try_variant_get(variant, "$", "map<string,variant>"))
    items = F.coalesce(F.try_variant_get(variant, "$", "array<variant>"), fields)
    mixed = F.when(types.contains("VARIANT"), F.transform(items, lambda item: _typed(item, levels - 1)))
    return F.struct(F.to_json(variant), types, mixed)

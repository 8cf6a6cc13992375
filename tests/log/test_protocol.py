from itertools import permutations
from typing import Any

import pytest
from pyspark.sql import SparkSession

from compaction_kit.log.protocol import unsupported_type_change
from tests import deltas_view, handmade
from tests.releases import since_delta

KINDS = {
    "byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT", "float": "FLOAT",
    "double": "DOUBLE", "date": "DATE", "timestamp": "TIMESTAMP", "timestamp_ntz": "TIMESTAMP_NTZ",
    "string": "STRING", "boolean": "BOOLEAN", "binary": "BINARY",
    **{f"decimal({n})": f"DECIMAL({n})" for n in ("3,0", "5,2", "10,0", "12,2", "20,0", "22,2")},
}  # fmt: skip


def column(change: dict[str, Any]) -> dict[str, Any]:
    return {"name": "c", "type": "string", "nullable": True, "metadata": {"delta.typeChanges": [change]}}


@since_delta("4.0")
@pytest.mark.spark
def test_changes_of_types_are_supported_as_in_delta(spark: SparkSession) -> None:
    jvm = deltas_view._jvm(spark)
    made = spark.sparkContext._jvm.org.apache.spark.sql.types.DataType.fromDDL  # type: ignore[union-attr]
    types = {kind: made(sql) for kind, sql in KINDS.items()}
    told = {}
    for before, after in permutations(KINDS, 2):
        schema = {"type": "struct", "fields": [column({"fromType": before, "toType": after})]}
        told[before, after] = unsupported_type_change(schema)
        is_supported = jvm.TypeWidening.isTypeChangeSupported(types[before], types[after])
        assert told[before, after] == (None if is_supported else f"c: {before} → {after}")
    assert told["byte", "decimal(5,2)"] is not None
    assert told["byte", "decimal(10,0)"] is None


def test_a_change_of_a_nested_columns_type_is_found() -> None:
    inner = {"type": "struct", "fields": [column({"fromType": "long", "toType": "byte"})]}
    by_key = {"type": "map", "keyType": inner, "valueType": "long"}
    for nested in (inner, {"type": "array", "elementType": inner}, by_key):
        assert unsupported_type_change(handmade.struct_of({"o": nested})) == "c: long → byte"

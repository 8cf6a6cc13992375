"""Other readers and formats: symlink manifests, conversion from Parquet to Delta and back."""

from compaction_kit.interop.check import ManifestCheck, check_manifest
from compaction_kit.interop.convert import ConvertPlan, ConvertResult, plan_convert
from compaction_kit.interop.damage import Damage
from compaction_kit.interop.manifest import (
    generate_manifest,
    keep_manifest,
    read_manifest,
    read_through_manifest,
)
from compaction_kit.interop.set_aside import put_back
from compaction_kit.interop.to_parquet import ParquetPlan, ParquetResult, plan_to_parquet

__all__ = [
    "ConvertPlan",
    "ConvertResult",
    "Damage",
    "ManifestCheck",
    "ParquetPlan",
    "ParquetResult",
    "check_manifest",
    "generate_manifest",
    "keep_manifest",
    "plan_convert",
    "plan_to_parquet",
    "put_back",
    "read_manifest",
    "read_through_manifest",
]

"""Other readers and formats: symlink manifests, conversion from Parquet to Delta and back."""

from compaction_kit.interop.conversion import (
    ConversionResult,
    ConvertPlan,
    ParquetPlan,
    plan_convert,
    plan_to_parquet,
)
from compaction_kit.interop.manifest import ManifestCheck, check_manifest, generate_manifest, read_manifest

__all__ = ["ConversionResult", "ConvertPlan", "ManifestCheck", "ParquetPlan", "check_manifest"]
__all__ += ["generate_manifest", "plan_convert", "plan_to_parquet", "read_manifest"]

"""Many tables: where they are, and which of them compaction would help the most."""

from compaction_kit.survey.find import find_tables
from compaction_kit.survey.survey import Survey, survey

__all__ = ["Survey", "find_tables", "survey"]

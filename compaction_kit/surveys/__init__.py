"""Find many tables and rank them by what compaction would gain."""

from compaction_kit.surveys.find import find_tables
from compaction_kit.surveys.survey import Survey, survey

__all__ = ["Survey", "find_tables", "survey"]

"""The history of a table: its commits, the versions that can be read, their differences, and RESTORE."""

from compaction_kit.history.content import FirstRows, first_rows
from compaction_kit.history.diff import Diff, diff_versions
from compaction_kit.history.restore import RestorePlan, RestoreResult, plan_restore
from compaction_kit.history.versions import (
    Resolved,
    Storage,
    read_history,
    read_log_expiry,
    read_storage,
    read_versions,
    resolve,
)

__all__ = ["Diff", "FirstRows", "Resolved", "RestorePlan", "RestoreResult", "Storage", "diff_versions"]
__all__ += ["first_rows", "plan_restore", "read_history", "read_log_expiry", "read_storage", "read_versions"]
__all__ += ["resolve"]

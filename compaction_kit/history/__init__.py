"""Looking back: what each version did, which can be read, what differs between two, going back."""

from compaction_kit.history.cleanup import LogCleanup, plan_log_cleanup
from compaction_kit.history.diff import Diff, diff_versions
from compaction_kit.history.restore import RestorePlan, RestoreResult, plan_restore
from compaction_kit.history.versions import (
    Resolved,
    Storage,
    read_history,
    read_storage,
    read_versions,
    resolve,
)

__all__ = [
    "Diff",
    "LogCleanup",
    "Resolved",
    "RestorePlan",
    "RestoreResult",
    "Storage",
    "diff_versions",
    "plan_log_cleanup",
    "plan_restore",
    "read_history",
    "read_storage",
    "read_versions",
    "resolve",
]

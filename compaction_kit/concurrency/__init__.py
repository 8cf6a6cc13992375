"""Two writers of one table at once, each time the same: who wins, and by which of Delta's rules.

Delta's writers take no locks. Each reads a version, writes files, and tries to commit the next version;
if another was there before, it looks whether that changed what it had read (Delta's ConflictChecker).
"""

from compaction_kit.concurrency.play import play, scenarios
from compaction_kit.concurrency.story import Refusal, Story

__all__ = ["Refusal", "Story", "play", "scenarios"]

"""Make a table look older: move its file times and the times in its commits back."""

import json
import os
from pathlib import Path

_DAY = 86_400


def age(table: Path, days: float) -> None:
    """Move file times and the times in commits back by some days; times in checkpoints stay."""
    for commit in (table / "_delta_log").glob("*.json"):
        _rewrite(commit, int(days * _DAY * 1000))
    for checksum in (table / "_delta_log").glob("*.crc"):
        checksum.unlink()  # checksums repeat content of the commits
    for path in table.rglob("*"):
        if path.is_file():
            age_file(path, days)


def age_file(path: Path, days: float) -> None:
    """Move a file's times back by some days."""
    status = path.stat()
    os.utime(path, (status.st_atime - days * _DAY, status.st_mtime - days * _DAY))


def _rewrite(commit: Path, millis: int) -> None:
    status = commit.stat()
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        for name, field in (("remove", "deletionTimestamp"), ("commitInfo", "inCommitTimestamp")):
            if action.get(name, {}).get(field) is not None:
                action[name][field] -= millis
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    os.utime(commit, (status.st_atime, status.st_mtime))

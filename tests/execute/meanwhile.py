"""Actions during a run: the commit of another writer, or any function at the start of a step."""

import time
from collections.abc import Callable
from pathlib import Path

from compaction_kit.datasets import shaped_table
from compaction_kit.execute import Progress
from tests import handmade
from tests.folders import data_files


def once(step: str, act: Callable[[], object]) -> Callable[[Progress], None]:
    """Return a progress callback that calls `act` once, when `step` has begun."""
    acted: list[bool] = []

    def report(progress: Progress) -> None:
        if progress.step.startswith(step) and not acted:
            acted.append(True)
            act()

    return report


def once_rewriting(act: Callable[[], object]) -> Callable[[Progress], None]:
    return once("Rewriting", act)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def commit_behind(table: Path, version: int, actions: list[handmade.Action]) -> Callable[[], None]:
    """Return a function that commits, like another writer, as soon as the run has written a file."""
    before = data_files(table)

    def act() -> None:
        wait_until(lambda: len(data_files(table)) > len(before))
        assert not handmade.commit_path(table, version).exists()
        handmade.write_commit(table, version, actions)

    return act


def clustered_table(folder: Path, files: int = 18, rows: int = 30) -> Path:
    """A table at version 4, clustered by id and value; no file is in a cube yet."""
    table = Path(shaped_table(folder, partitions=0, files=files, rows=rows, commits=3))
    handmade.write_commit(table, 4, handmade.clustered_by("id", "value"))
    return table

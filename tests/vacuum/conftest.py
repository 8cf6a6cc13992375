"""Tables of a few bytes with a past, written by hand."""

import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests import handmade
from tests.ageing import age_file
from tests.vacuum.vacuums import drop_file

DAY = 86_400_000
Aged = Callable[..., Path]


@pytest.fixture
def aged(tmp_path: Path) -> Aged:
    """Writes commits of so many days ago, each a list of actions, and the files that they add."""

    def write(*commits: tuple[float, list[handmade.Action]], folder: Path | None = None) -> Path:
        table = folder or tmp_path / "table"
        handmade.write_log(table, *(actions for _, actions in commits))
        for version, (days, actions) in enumerate(commits):
            age_file(handmade.commit_path(table, version), days)
            for action in actions:
                for kind in ("add", "cdc"):
                    if kind in action:
                        drop_file(table, unquote(action[kind]["path"]), days)
        return table

    return write


def removed(path: str, days: float) -> handmade.Action:
    """A remove action of so many days ago."""
    return handmade.remove(path, int(time.time() * 1000 - days * DAY))

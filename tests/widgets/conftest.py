import logging
from collections.abc import Iterator
from pathlib import Path

import ipywidgets
import pytest


@pytest.fixture(autouse=True)
def _own_recent_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of tests are not among those that the user has opened."""
    monkeypatch.setattr("compaction_kit.widgets.tables.cache_folder", lambda: tmp_path / ".cache")


@pytest.fixture(autouse=True)
def _no_swallowed_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Outside a notebook ipywidgets logs what a handler raises, and goes on: make that fail."""
    yield
    bad = [r for r in caplog.get_records("call") if r.name == "traitlets" and r.levelno >= logging.WARNING]
    assert not bad, "\n".join(record.getMessage() for record in bad)
    ipywidgets.Widget.close_all()

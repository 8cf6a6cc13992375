import logging
from collections.abc import Iterator

import ipywidgets
import pytest

from compaction_kit.session import cache_folder


@pytest.fixture(autouse=True)
def _own_recent_tables() -> None:
    """Forget the tables that another test has opened."""
    (cache_folder() / "recent.json").unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def _no_swallowed_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail if a handler raises an error, which ipywidgets only logs outside a notebook."""
    yield
    bad = [r for r in caplog.get_records("call") if r.name == "traitlets" and r.levelno >= logging.WARNING]
    assert not bad, "\n".join(record.getMessage() for record in bad)
    ipywidgets.Widget.close_all()

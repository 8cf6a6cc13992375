"""Notebooks that pytest runs use the JVM of its process."""

import os
from collections.abc import Generator
from typing import Any

import pytest
from nbval.plugin import IPyNbCell

from tests.conftest import QUICK, QUICK_STREAMS
from tests.jvm import address, defaults, free_jvm, stop_sessions


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """Kernels start with a notebook's first cell, and end with its last."""
    gateway = free_jvm() if isinstance(item, IPyNbCell) else None
    if gateway is None:
        return (yield)
    # These change no result, and lessons compute next to nothing. The tour runs as readers run it.
    settings = {} if item.path.stem == "tour" else QUICK | QUICK_STREAMS
    with pytest.MonkeyPatch.context() as patch, defaults(gateway, settings):
        for name, value in address(gateway).items():
            patch.setitem(os.environ, name, value)
        result = yield
    if nextitem is None or nextitem.parent is not item.parent:
        stop_sessions(gateway)
    return result

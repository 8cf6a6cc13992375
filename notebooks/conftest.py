"""Notebooks that pytest runs use the JVM of its process, and print what they printed before."""

import os
from collections.abc import Generator
from typing import Any

import pytest
from nbval.plugin import IPyNbCell

from tests.conftest import QUICK, QUICK_STREAMS
from tests.jvm import address, defaults, free_jvm, stop_sessions
from tests.notebooks.outputs import compare_or_accept

_ACCEPT = "--accept-outputs"
# Files are a little larger or smaller by it, as they are with other releases or machines: lines that
# follow from their bytes aren't stable.
_OTHER_SIZES = {"spark.sql.parquet.compression.codec": "lz4_raw"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        _ACCEPT,
        choices=("printed", "stable"),
        help="keep in tests/notebooks/outputs what cells print; or, of what is kept, what they print again "
        "with files of other sizes",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """Kernels start with a notebook's first cell, and end with its last."""
    gateway = free_jvm() if isinstance(item, IPyNbCell) else None
    if gateway is None:
        return (yield)
    # These change no result, and lessons compute next to nothing. The tour runs as readers run it.
    settings = {} if item.path.stem == "tour" else QUICK | QUICK_STREAMS
    if item.config.getoption(_ACCEPT, None) == "stable":
        settings = settings | _OTHER_SIZES
    with pytest.MonkeyPatch.context() as patch, defaults(gateway, settings):
        for name, value in address(gateway).items():
            patch.setitem(os.environ, name, value)
        result = yield
    if nextitem is None or nextitem.parent is not item.parent:
        stop_sessions(gateway)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """A cell that ran fails if a number in its text isn't the kept one."""
    result = yield
    if isinstance(item, IPyNbCell):
        accept = item.config.getoption(_ACCEPT, None)
        changed = compare_or_accept(item.path, item.cell["id"], item.test_outputs, accept)
        if changed:
            command = f"pytest {item.path.relative_to(item.config.rootpath)} {_ACCEPT}=printed"
            hint = f"If that is meant: {command}, and once more with {_ACCEPT}=stable"
            item.raise_cell_error(f"its output has changed\n{changed}\n{hint}")
    return result

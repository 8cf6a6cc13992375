"""Run notebooks by pytest with shared kernels, Spark and flights, and compare their output with kept output.

Kernels are forked from one process and use the Spark context of pytest's own process, each with a new
session. Tour and workbench start and stop Spark themselves, as they do for readers.
"""

import functools
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import nbval.kernel
import pytest
from jupyter_client.manager import KernelManager
from nbval.plugin import IPyNbCell
from pyspark.sql import SparkSession

from compaction_kit.compat import session_class
from tests.conftest import QUICK, QUICK_STREAMS, shared_folder
from tests.jvm import address, defaults, free_jvm, own_session, stop_sessions
from tests.notebooks import forked
from tests.notebooks.lessons import parts
from tests.notebooks.outputs import compare_or_accept

_ACCEPT = "--accept-outputs"
# Another codec changes file sizes a little, as other releases and machines do. Printed lines that change
# with file sizes aren't stable.
_OTHER_SIZES = {"spark.sql.parquet.compression.codec": "lz4_raw"}
# A folder of Jupyter with the kernel spec "forked", which runs forked.py.
_JUPYTER = Path(forked.__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        _ACCEPT,
        choices=("printed", "stable"),
        help="keep in tests/notebooks/outputs what cells print; or, of what is kept, what they print again "
        "with files of other sizes",
    )


@functools.cache
def _further(notebook: Path) -> frozenset[str]:
    """Return the ids of the cells in a lesson's part "Going further"."""
    return frozenset(cell.id for cell in parts(notebook).get("Going further", ()))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cells that no lesson needs as nightly: solutions, the museum, and "Going further"."""
    for item in items:
        if isinstance(item, IPyNbCell):
            beside = item.path.parent.name == "solutions" or item.path.stem == "museum"
            if beside or item.cell["id"] in _further(item.path):
                item.add_marker(pytest.mark.nightly)


class _Shared:
    """The process from which kernels are forked, and this process's Spark context, which they use."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kernels-")
        self._socket = f"{self._folder.name}/socket"
        self.sockets = f"{self._folder.name}/kernel"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._socket)
            listener.listen()
            number = listener.fileno()
            command = [sys.executable, forked.__file__, str(number)]
            self._server = subprocess.Popen(
                command, stdin=subprocess.PIPE, pass_fds=[number], start_new_session=True
            )
        self._spark: SparkSession | None = None
        self._settings: Mapping[str, str] = {}

    def kernels(self, flights: Path) -> dict[str, str]:
        """Return the environment variables for processes that ask for a kernel."""
        return {"JUPYTER_PATH": str(_JUPYTER), forked.SOCKET: self._socket, forked.FLIGHTS: str(flights)}

    def new_session(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Start a session for a kernel; return its environment variables, none if a test uses Spark."""
        if settings != self._settings:
            self.stop_spark()
        if self._spark is None:
            gateway = free_jvm()
            if gateway is None:
                return {}
            with defaults(gateway, settings):
                self._spark, self._settings = own_session(), settings
        session_class(self._spark).setDefaultSession(self._spark._jsparkSession.newSession())
        return address(self._spark.sparkContext._gateway) | {forked.KEPT: "yes"}

    def end_session(self) -> None:
        """Stop Spark unless the kernel cleared the default session, because it needs no more Spark."""
        if self._spark is not None and session_class(self._spark).getDefaultSession().isDefined():
            self.stop_spark()

    def stop_spark(self) -> None:
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    def close(self) -> None:
        self.stop_spark()
        self._server.communicate()
        self._folder.cleanup()


_SHARED = pytest.StashKey[_Shared]()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if shared := session.config.stash.get(_SHARED, None):
        shared.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """Start a kernel with a notebook's first cell, and end it with the last cell."""
    if not isinstance(item, IPyNbCell):
        return (yield)
    config = item.config
    if _SHARED not in config.stash:
        config.stash[_SHARED] = _Shared()
    shared = config.stash[_SHARED]
    environment = shared.kernels(shared_folder(config._tmp_path_factory) / "flights")
    sizes = _OTHER_SIZES if config.getoption(_ACCEPT, None) == "stable" else {}
    own_spark = None
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        if item.path.stem in ("tour", "workbench"):
            shared.stop_spark()
            own_spark = free_jvm()
        elif item.parent.kernel is None:
            # These settings change no result; they are faster because lessons compute very little.
            environment |= shared.new_session(QUICK | QUICK_STREAMS | sizes)
        if own_spark is not None:
            environment |= address(own_spark)
            stack.enter_context(defaults(own_spark, sizes))
        for name, value in environment.items():
            patch.setitem(os.environ, name, value)
        patch.setattr(config.option, "nbval_current_env", False)
        patch.setattr(config.option, "nbval_kernel_name", "forked")
        # Use a path: another process may take a port between Jupyter's check and the kernel's start.
        by_path = functools.partial(KernelManager, transport="ipc", ip=shared.sockets)
        patch.setattr(nbval.kernel, "KernelManager", by_path)
        result = yield
    if nextitem is None or nextitem.parent is not item.parent:
        shared.end_session()
        if own_spark is not None:
            stop_sessions(own_spark)
    if not isinstance(nextitem, IPyNbCell):
        shared.stop_spark()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a cell if a number in its output has changed, or if an exercise can't run a second time."""
    result = yield
    if isinstance(item, IPyNbCell):
        accept = item.config.getoption(_ACCEPT, None)
        changed = compare_or_accept(item.path, item.cell["id"], item.test_outputs, accept)
        if changed:
            command = f"pytest {item.path.relative_to(item.config.rootpath)} {_ACCEPT}=printed"
            hint = f"If that is meant: {command}, and once more with {_ACCEPT}=stable"
            item.raise_cell_error(f"its output has changed\n{changed}\n{hint}")
        if item.cell.source.startswith("# Solution goes here"):
            # Students run this cell again for each answer.
            item.runtest()
    return result

"""JupyterLab, Notebook 7 and Voilà of our own on the loopback."""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from compaction_kit.session import cache_folder
from tests.conftest import QUICK
from tests.jvm import lent_jvm

_SETTINGS = {
    "apputils-extension/notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    "notebook-extension/tracker": {"windowingMode": "none"},
    "docmanager-extension/plugin": {"autosave": False},
}


def share_flights(scratch: Path, flights: Path) -> None:
    """Have the kernels of a server copy the flights of a year instead of making them, in a second or more."""
    lines = (
        "import shutil, time",
        "from compaction_kit import datasets",
        f"datasets.flights = lambda path: time.sleep(1) or str(shutil.copytree({str(flights)!r}, path))",
    )
    startup = scratch / "ipython" / "profile_default" / "startup" / "flights.py"
    startup.parent.mkdir(parents=True)
    startup.write_text("\n".join(lines))


@contextlib.contextmanager
def jupyterlab(root: Path, scratch: Path, *, lend: bool = True) -> Iterator[str]:
    """Serve a folder by JupyterLab; yields an address that a file's path can be put into.

    The tests' JVM is lent to its kernel, with settings for little data; else that one starts its own.
    """
    options = ["--LabApp.expose_app_in_browser=True", "--LabApp.news_url="]
    jvm: AbstractContextManager[dict[str, str]]
    jvm = lent_jvm(QUICK) if lend else contextlib.nullcontext({})
    with (
        jvm as more,
        _jupyter(["jupyterlab", *options], "lab/tree/{}", root, scratch, more) as served,
    ):
        yield served


@contextlib.contextmanager
def notebook_7(root: Path, scratch: Path) -> Iterator[str]:
    """Serve a folder by Notebook 7; yields an address that a notebook's path can be put into."""
    options = ["--JupyterNotebookApp.expose_app_in_browser=True", "--LabApp.news_url="]
    with (
        lent_jvm(QUICK) as more,
        _jupyter(["notebook", *options], "notebooks/{}", root, scratch, more) as served,
    ):
        yield served


@contextlib.contextmanager
def _jupyter(
    application: list[str], page: str, root: Path, scratch: Path, more: dict[str, str]
) -> Iterator[str]:
    token = secrets.token_hex(16)
    for name, values in _SETTINGS.items():
        file = scratch / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    port = _free_port()
    command = [
        *(*application, "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"),
        *("--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}"),
    ]
    address = f"http://127.0.0.1:{port}"
    with _served(command, scratch, root, f"{address}/api/status?token={token}", more):
        yield f"{address}/{page}?token={token}&reset"


@contextlib.contextmanager
def voila(notebook: Path, scratch: Path) -> Iterator[str]:
    """Serve a notebook as a page by Voilà; yields its address."""
    port = _free_port()
    command = [
        *("voila", str(notebook), "--no-browser", "--Voila.ip=127.0.0.1", f"--port={port}"),
        "--VoilaConfiguration.show_tracebacks=True",
    ]
    address = f"http://127.0.0.1:{port}"
    with (
        lent_jvm() as more,
        _served(command, scratch, notebook.parent, f"{address}/static/does-not-matter", more),
    ):
        yield f"{address}/"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _served(
    command: list[str], scratch: Path, folder: Path, status: str, more: dict[str, str]
) -> Iterator[None]:
    """A server, with settings of its own and more in its environment, until the block ends."""
    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    }
    environment = os.environ | more | {key: str(scratch / name) for key, name in folders.items()}
    environment["XDG_CACHE_HOME"] = str(_cache_without_recent_tables(scratch / "cache"))
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    log = scratch / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_up(server, status, log)
        yield
    finally:
        server.terminate()
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _cache_without_recent_tables(folder: Path) -> Path:
    """The user's cache, but for the list of the tables opened last, which stays the user's own."""
    used, own = cache_folder(), folder / cache_folder().name
    own.mkdir(parents=True)
    for place, into in ((used.parent, folder), (used, own)):
        for path in place.iterdir() if place.is_dir() else ():
            if path not in (used, used / "recent.json"):
                (into / path.name).symlink_to(path)
    return folder


def _wait_until_up(server: subprocess.Popen[bytes], address: str, log: Path, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(address, timeout=2).read()
            return
        except urllib.error.HTTPError:
            return  # it answers
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"The server did not come up:\n{log.read_text()}")

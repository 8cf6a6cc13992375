"""Start servers of JupyterLab, Notebook 7 and Voilà on the loopback."""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from tests.conftest import QUICK
from tests.execute.meanwhile import wait_until
from tests.folders import own_cache
from tests.jvm import lent_jvm

# Yields the environment variables with which a kernel uses a lent JVM.
Jvm = AbstractContextManager[dict[str, str]]
_SETTINGS = {
    "apputils-extension/notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    "notebook-extension/tracker": {"windowingMode": "none"},
    "docmanager-extension/plugin": {"autosave": False},
}


def jupyterlab(root: Path, scratch: Path, *, lend: bool = True) -> AbstractContextManager[str]:
    """Serve a folder by JupyterLab; yield an address with a placeholder for the path of a file.

    With `lend`, the kernel uses the tests' JVM, with settings for little data; else it starts its own JVM.
    """
    jvm: Jvm = lent_jvm(QUICK) if lend else contextlib.nullcontext({})
    return _jupyter("jupyterlab", "LabApp", "lab/tree/{}", root, scratch, jvm)


def notebook_7(root: Path, scratch: Path) -> AbstractContextManager[str]:
    """Serve a folder by Notebook 7; yield an address with a placeholder for the path of a notebook."""
    return _jupyter("notebook", "JupyterNotebookApp", "notebooks/{}", root, scratch, lent_jvm(QUICK))


@contextlib.contextmanager
def _jupyter(application: str, name: str, page: str, root: Path, scratch: Path, jvm: Jvm) -> Iterator[str]:
    token = secrets.token_hex(16)
    for plugin, values in _SETTINGS.items():
        file = scratch / f".jupyter/lab/user-settings/@jupyterlab/{plugin}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    command = [
        *(application, f"--{name}.expose_app_in_browser=True", "--LabApp.news_url=", "--allow-root"),
        *("--ip=127.0.0.1", "--ServerApp.port_retries=0"),
        *(f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}"),
    ]
    with _served(command, scratch, root, jvm) as address:
        yield f"{address}/{page}?token={token}&reset"


@contextlib.contextmanager
def voila(notebook: Path, scratch: Path) -> Iterator[str]:
    """Serve a notebook as a page by Voilà; yields its address."""
    options = ["--Voila.ip=127.0.0.1", "--VoilaConfiguration.show_tracebacks=True"]
    with _served(["voila", str(notebook), *options], scratch, notebook.parent, lent_jvm()) as address:
        yield f"{address}/"


@contextlib.contextmanager
def _served(command: list[str], scratch: Path, folder: Path, jvm: Jvm) -> Iterator[str]:
    """Run a server with settings of its own, and a JVM for its kernels; yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    places = {"HOME": str(scratch), "XDG_CACHE_HOME": own_cache(scratch / "cache")}
    places["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    log = scratch / "server.log"
    with jvm as more, log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", *command, "--no-browser", f"--port={port}"],
            cwd=folder,
            env=os.environ | places | more,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait_until(lambda: server.poll() is not None or _answers(f"http://127.0.0.1:{port}"))
            assert server.poll() is None, log.read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(f"{address}/static/does-not-matter", timeout=2).read()
    except OSError as error:
        return isinstance(error, urllib.error.HTTPError)
    return True

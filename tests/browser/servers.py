"""JupyterLab and Voilà of our own on the loopback, and a notebook in them driven by Chromium."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page

# Chromium's own calls home would only be refused in a closed network, many at a time.
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
_SETTINGS = {
    "apputils-extension/notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    "notebook-extension/tracker": {"windowingMode": "none"},
    "docmanager-extension/plugin": {"autosave": False},
}
_READY = """async () => {
    const app = window.jupyterapp;
    await app.restored;
    const panel = app.shell.currentWidget;
    await panel.revealed;
    await panel.context.ready;
    await panel.sessionContext.ready;
    await panel.sessionContext.session.kernel.info;
}"""
_OUTPUTS = """() => window.jupyterapp.shell.currentWidget.context.model.toJSON()
    .cells.flatMap(cell => cell.outputs ?? [])"""


def find_chromium() -> str | None:
    """The machine's Chromium or Chrome, if it has one."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((found for name in names if (found := shutil.which(name))), None)


@contextlib.contextmanager
def jupyterlab(root: Path, scratch: Path) -> Iterator[str]:
    """Serve a folder by JupyterLab; yields an address that a file's path can be put into."""
    token = secrets.token_hex(16)
    for name, values in _SETTINGS.items():
        file = scratch / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    port = _free_port()
    command = [
        *("jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"),
        *("--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}"),
        *("--LabApp.expose_app_in_browser=True", "--LabApp.news_url="),
    ]
    address = f"http://127.0.0.1:{port}"
    with _served(command, scratch, root, f"{address}/api/status?token={token}"):
        yield f"{address}/lab/tree/{{}}?token={token}&reset"


@contextlib.contextmanager
def voila(notebook: Path, scratch: Path) -> Iterator[str]:
    """Serve a notebook as a page by Voilà; yields its address."""
    port = _free_port()
    command = [
        *("voila", str(notebook), "--no-browser", "--Voila.ip=127.0.0.1", f"--port={port}"),
        "--VoilaConfiguration.show_tracebacks=True",
    ]
    address = f"http://127.0.0.1:{port}"
    with _served(command, scratch, notebook.parent, f"{address}/static/does-not-matter"):
        yield f"{address}/"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _served(command: list[str], scratch: Path, folder: Path, status: str) -> Iterator[None]:
    """A server, with settings of its own, until the block ends."""
    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    }
    environment = os.environ | {key: str(scratch / name) for key, name in folders.items()}
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


def run_all_cells(page: Page, address: str) -> None:
    """Open a notebook, wait for its kernel, and run every cell."""
    page.goto(address, wait_until="domcontentloaded")
    page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.sessionContext", timeout=90_000)
    page.evaluate(_READY)
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")


def trouble(page: Page) -> list[str]:
    """What the notebook's cells show of errors, warnings and stray prints."""
    outputs = page.evaluate(_OUTPUTS)
    errors = [f"{o['ename']}: {o['evalue']}" for o in outputs if o["output_type"] == "error"]
    return errors + ["".join(o["text"]) for o in outputs if o["output_type"] == "stream"]

"""Install into a virtual environment with the versions of constraints.txt: with uv, or else with pip.

python3 tools/environment.py .venv --editable '.[tour]'
"""

import ast
import os
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

LOCK = Path(__file__).resolve().parents[1] / "constraints.txt"
# uv doesn't read pip's settings, so the sources of packages are passed to uv in its own variables.
VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}


def main(folder: Path, arguments: list[str]) -> int:
    """Make the environment if there is none, and install; return the exit code."""
    start = time.monotonic()
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"Making the environment {folder} …", flush=True)
        venv.create(folder, with_pip=True)
    uv = find_uv(python)
    print(f"Installing {' '.join(arguments)} with {'uv' if uv else 'pip'}; ", end="")
    print("the first time this downloads up to 1 GB, of which Spark is 450 MB …", flush=True)
    code = install_with_uv(uv, python, arguments) if uv else 1
    if code and uv:
        print("uv did not succeed; trying pip …", flush=True)
    if code:
        # Use an environment variable, which applies to the packages for builds too.
        environment = os.environ | {"PIP_CONSTRAINT": str(LOCK)}
        code = subprocess.call([*pip(python), "install", "--quiet", *arguments], env=environment)
    if code == 0:
        print(f"Installed in {time.monotonic() - start:.0f} s.", flush=True)
    return code


def pip(python: Path) -> list[str]:
    """Return the command of an environment's pip."""
    return [str(python), "-m", "pip", "--disable-pip-version-check"]


def find_uv(python: Path) -> str | None:
    """Return the path of uv: the environment's, the PATH's, or one that pip installs; None if pip can't."""
    own = python.with_name("uv")
    if not own.exists() and not shutil.which("uv"):
        command = [*pip(python), "install", "--quiet", "--constraint", str(LOCK), "uv"]
        subprocess.call(command, stderr=subprocess.DEVNULL)
    return str(own) if own.exists() else shutil.which("uv")


def install_with_uv(uv: str, python: Path, arguments: list[str]) -> int:
    """Install from pip's sources by uv; return uv's exit code."""
    listed = subprocess.run([*pip(python), "config", "list"], capture_output=True, text=True, check=False)
    environment = uv_variables(listed.stdout) | os.environ
    lock = ["--constraints", str(LOCK), "--build-constraints", str(LOCK)]
    # uv always lists what it installs, but shows progress only on a terminal.
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    command = [uv, "pip", "install", *quiet, "--python", str(python), *lock, *arguments]
    code = subprocess.call(command, env=environment)
    # If a registry doesn't limit how long files are kept, each install leaves 2 GB of PySpark's source.
    subprocess.call([uv, "cache", "prune", "--quiet"], env=environment)
    return code


def uv_variables(config: str) -> dict[str, str]:
    """Translate what `pip config list` prints, such as `global.index-url='https://…'`, to uv's variables."""
    found = {}
    for line in config.splitlines():
        key, _, value = line.partition("=")
        variable = VARIABLES.get(key.rpartition(".")[2])
        if variable and value:
            separator = "," if variable == "UV_FIND_LINKS" else " "
            found[variable] = separator.join(str(ast.literal_eval(value)).split())
    return found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))

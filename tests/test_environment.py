"""What `make` installs: the versions of constraints.txt, from where pip's settings say, with uv or pip."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.test_project import PROJECT, ROOT
from tools import environment

# Pinned by pyproject.toml, for each pair.
PAIRED = {"pyspark", "delta-spark"}


def test_the_lock_has_a_fitting_version_of_all_that_is_asked_for() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines]
    assert all(str(pin.specifier).startswith("==") and not pin.url for pin in pins)
    locked = {pin.name.lower(): pin for pin in pins if pin.marker is None or pin.marker.evaluate()}
    extras = PROJECT["optional-dependencies"]
    names = [name for name in extras if not name.startswith("spark-")]
    asked = map(Requirement, [*PROJECT["dependencies"], *(line for name in names for line in extras[name])])
    missing = []
    for needed in asked:
        name = needed.name.lower()
        pin = locked.get(name)
        if name not in PAIRED | {"compaction-kit"} and not (
            pin and needed.specifier.contains(str(pin.specifier)[2:])
        ):
            missing.append(str(needed))
    assert missing == [], "run: make upgrade"


def test_uv_is_given_the_places_of_pips_settings() -> None:
    config = (
        ":env:.find-links='/opt/wheels'\n"
        "global.index-url='https://a.example/simple?x=1'\n"
        "global.extra-index-url='\\nhttps://b.example/simple\\nhttps://c.example/simple'\n"
        "install.timeout='60'\n"
    )
    assert environment.uv_variables(config) == {
        "UV_FIND_LINKS": "/opt/wheels",
        "UV_DEFAULT_INDEX": "https://a.example/simple?x=1",
        "UV_INDEX": "https://b.example/simple https://c.example/simple",
    }


@pytest.mark.slow
@pytest.mark.nightly
def test_pip_installs_where_uv_fails(tmp_path: Path) -> None:
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text("#!/bin/sh\nexit 2\n")
    uv.chmod(0o755)
    info = "small-1.0.dist-info"
    with zipfile.ZipFile(wheel := tmp_path / "small-1.0-py3-none-any.whl", "w") as file:
        file.writestr("small.py", "")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    done = subprocess.run(
        [sys.executable, environment.__file__, str(tmp_path / "env"), str(wheel)],
        env={"PATH": f"{uv.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "trying pip" in done.stdout
    subprocess.run([str(tmp_path / "env" / "bin" / "python"), "-c", "import small"], check=True)

"""What `make` installs: the versions of constraints.txt, from where pip's settings say, with uv or pip."""

from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.processes import run_python
from tests.test_project import EXTRAS, PROJECT, text_of
from tools import environment


def test_the_lock_has_a_fitting_version_of_all_that_is_asked_for() -> None:
    pins = list(map(Requirement, text_of("constraints.txt").splitlines()))
    assert all(str(pin.specifier).startswith("==") and not pin.url for pin in pins)
    # Of a pair of Spark and Delta each extra has its own.
    locked = {pin.name.lower(): pin for pin in pins if pin.marker is None or pin.marker.evaluate()}
    extras = [lines for name, lines in EXTRAS.items() if not name.startswith("spark-")]
    missing = []
    for needed in map(Requirement, chain(PROJECT["dependencies"], *extras)):
        name, pin = needed.name.lower(), locked.get(needed.name.lower())
        fits = pin and needed.specifier.contains(str(pin.specifier)[2:])
        if name not in {"pyspark", "delta-spark", "compaction-kit"} and not fits:
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
    # Without a download: pip is there already.
    done = run_python(environment.__file__, str(tmp_path / "env"), "pip", PATH=f"{uv.parent}:/usr/bin:/bin")
    assert "trying pip" in done.stdout
    assert "Installed in" in done.stdout

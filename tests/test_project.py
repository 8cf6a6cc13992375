"""Check that the project's files agree with one another, and that `make` installs what they say."""

import json
import os
import re
import tomllib
from importlib.metadata import requires, version
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import compaction_kit as ck
from tests.processes import run_python
from tools import environment

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_laptops_spark_and_delta_are_pinned_to_what_is_installed() -> None:
    pins = {f"{package}=={version(package)}" for package in ("pyspark", "delta-spark")}
    assert pins <= set(EXTRAS["laptop"])


def test_every_pair_of_spark_and_delta_is_tried_and_within_what_the_package_takes() -> None:
    taken = {needed.name: needed.specifier for needed in map(Requirement, PROJECT["dependencies"])}
    pairs = sorted(name for name in EXTRAS if name.startswith("spark-"))
    for needed in (Requirement(line) for pair in pairs for line in EXTRAS[pair]):
        (least,) = needed.specifier
        assert taken[needed.name].contains(least.version)
    # The newest pair is that of the laptop, with which all tests run.
    assert f"PAIRS := {' '.join(pair for pair in pairs if pair != 'spark-4-2')}\n" in text_of("Makefile")
    (tried,) = re.findall(r"pair: \[(.*)\]", text_of(".github/workflows/tests.yml"))
    assert {*tried.split(", "), "spark-4-2"} == set(pairs)


def test_an_install_without_an_extra_gets_a_pair_that_works_together() -> None:
    # Otherwise pip installs a newer PySpark, and an older delta-spark that doesn't know this PySpark.
    (package,) = (one for one in map(Requirement, PROJECT["dependencies"]) if one.name == "pyspark")
    (delta,) = (one for one in map(Requirement, requires("delta-spark") or ()) if one.name == "pyspark")
    latest = [{part for part in str(one.specifier).split(",") if "<" in part} for one in (package, delta)]
    assert latest[0] == latest[1]


def test_changelog_and_citation_name_the_version_of_the_package() -> None:
    assert f"\n## [{ck.__version__}]" in text_of("CHANGELOG.md")
    assert f"\nversion: {ck.__version__}\n" in text_of("CITATION.cff")


def test_links_to_binder_and_codespaces_name_existing_files() -> None:
    container = json.loads(text_of(".devcontainer/devcontainer.json"))
    made = re.findall(r"make \S+/(\w+)\.installed", container["postCreateCommand"])
    assert made == ["notebooks"]
    assert "notebooks" in EXTRAS
    (lesson,) = re.findall(r"default_url=/lab/tree/(\S+)", container["postAttachCommand"])
    assert f"--port {container['forwardPorts'][0]} " in container["postAttachCommand"]
    assert (ROOT / lesson).exists()
    repository = PROJECT["urls"]["Homepage"].removeprefix("https://github.com/")
    assert f"https://mybinder.org/v2/gh/{repository}/main?urlpath=lab/tree/{lesson})" in text_of("README.md")
    assert f"https://codespaces.new/{repository})" in text_of("README.md")
    # Binder runs this file in the image that it builds from environment.yml.
    assert os.access(ROOT / "postBuild", os.X_OK)


def test_the_lock_has_a_fitting_version_of_all_that_is_asked_for() -> None:
    pins = list(map(Requirement, text_of("constraints.txt").splitlines()))
    assert all(str(pin.specifier).startswith("==") and not pin.url for pin in pins)
    # Each extra for a pair of Spark and Delta has its own versions of them.
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
    # Installing pip needs no download, because it is there already.
    done = run_python(environment.__file__, str(tmp_path / "env"), "pip", PATH=f"{uv.parent}:/usr/bin:/bin")
    assert "trying pip" in done.stdout
    assert "Installed in" in done.stdout


@pytest.mark.slow
@pytest.mark.nightly
def test_the_table_of_what_works_where_is_what_tests_show() -> None:
    shown = run_python(str(ROOT / "docs" / "works.py")).stdout
    assert shown.count(" yes ") > 20
    assert shown in text_of("docs/book/elsewhere.md")

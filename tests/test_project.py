"""That the project's files agree with one another."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import compaction_kit as ck

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_laptops_spark_and_delta_are_pinned_to_what_is_installed() -> None:
    laptop = PROJECT["optional-dependencies"]["laptop"]
    assert f"pyspark=={version('pyspark')}" in laptop
    assert f"delta-spark=={version('delta-spark')}" in laptop


def test_every_pair_of_spark_and_delta_is_tried_and_within_what_the_package_takes() -> None:
    taken = {needed.name: needed.specifier for needed in map(Requirement, PROJECT["dependencies"])}
    extras = PROJECT["optional-dependencies"]
    pairs = {name: extras[name] for name in extras if name.startswith("spark-")}
    for needed in (Requirement(line) for pair in pairs.values() for line in pair):
        (least,) = needed.specifier
        assert taken[needed.name].contains(least.version)
    makefile = (ROOT / "Makefile").read_text()
    assert f"PAIRS := {' '.join(pair for pair in sorted(pairs) if pair != 'spark-4-2')}\n" in makefile


def test_an_install_without_an_extra_gets_a_pair_that_works_together() -> None:
    # Else pip takes a newer PySpark, and with it an older delta-spark that doesn't know it.
    (package,) = (one for one in map(Requirement, PROJECT["dependencies"]) if one.name == "pyspark")
    (delta,) = (one for one in map(Requirement, requires("delta-spark") or ()) if one.name == "pyspark")
    latest = [{part for part in str(one.specifier).split(",") if "<" in part} for one in (package, delta)]
    assert latest[0] == latest[1]


def test_changelog_and_citation_name_the_version_of_the_package() -> None:
    assert f"\n## [{ck.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\nversion: {ck.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_workflows_try_every_pair_by_the_projects_own_targets() -> None:
    tests = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    (pairs,) = re.findall(r"pair: \[(.*)\]", tests)
    extras = PROJECT["optional-dependencies"]
    assert {*pairs.split(", "), "spark-4-2"} == {name for name in extras if name.startswith("spark-")}
    # And the README tells to run what CI runs.
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text()
    assert "`make test`" in (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        targets = re.findall(r"run: make (\w+)", workflow.read_text(encoding="utf-8"))
        assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets), workflow


def test_conda_users_get_the_list_of_pyproject() -> None:
    lines = [line.strip() for line in (ROOT / "environment.yml").read_text().splitlines()]
    packages = lines[lines.index("dependencies:") + 1 :]
    # Python, Java and make come from conda; everything else by the project's own list.
    assert [line.removeprefix("- ").split("=")[0] for line in packages] == [
        "python",
        "openjdk",
        "make",
        "pip",
        "pip:",
        "-e .[dev]",
    ]


def test_what_starts_without_a_clone_names_what_there_is() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    made = re.findall(r"make \S+/(\w+)\.installed", container["postCreateCommand"])
    assert made == ["notebooks"]
    assert "notebooks" in PROJECT["optional-dependencies"]
    (lesson,) = re.findall(r"default_url=/lab/tree/(\S+)", container["postAttachCommand"])
    assert f"--port {container['forwardPorts'][0]} " in container["postAttachCommand"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    repository = PROJECT["urls"]["Homepage"].removeprefix("https://github.com/")
    assert f"https://mybinder.org/v2/gh/{repository}/main?urlpath=lab/tree/{lesson})" in readme
    assert f"https://codespaces.new/{repository})" in readme
    assert (ROOT / lesson).exists()
    # What Binder runs in the image that it builds of environment.yml.
    assert os.access(ROOT / "postBuild", os.X_OK)


@pytest.mark.slow
@pytest.mark.nightly
def test_the_table_of_what_works_where_is_what_tests_show() -> None:
    done = subprocess.run(
        [sys.executable, "docs/works.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" yes ") > 20
    for page in ("README.md", "docs/book/elsewhere.md"):
        assert done.stdout in (ROOT / page).read_text(encoding="utf-8")

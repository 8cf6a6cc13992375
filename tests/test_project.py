"""That the project's files agree with one another."""

import tomllib
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_spark_and_delta_are_pinned_to_what_is_installed() -> None:
    assert f"pyspark=={version('pyspark')}" in PROJECT["dependencies"]
    assert f"delta-spark=={version('delta-spark')}" in PROJECT["dependencies"]


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


def test_ci_runs_what_the_readme_tells_to_run() -> None:
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text()
    assert "`make test`" in (ROOT / "README.md").read_text()

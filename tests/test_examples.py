"""The examples in docstrings, run as they are printed."""

import doctest
import importlib
import pkgutil
import re
import types
from collections.abc import Iterator
from pathlib import Path

import course
import pytest
from pyspark.sql import SparkSession

import compaction_kit as ck
from tests import folders

FINDER = doctest.DocTestFinder(exclude_empty=True)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def modules() -> Iterator[types.ModuleType]:
    for package in (ck, course):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


EXAMPLES = {test.name: test for module in modules() for test in FINDER.find(module) if test.examples}


@pytest.fixture(scope="module")
def beside_data(flights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder like that of a notebook, with the flights in data/flights."""
    folder = tmp_path_factory.mktemp("examples")
    folders.copy(flights, folder / "data" / "flights")
    return folder


@pytest.mark.spark
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_says(
    name: str, spark: SparkSession, beside_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test, report = EXAMPLES[name], list[str]()
    source = "".join(example.source for example in test.examples)
    if re.search(r"generate|datasets|write|\.run\(", source):
        folders.copy(beside_data / "data", tmp_path / "data")
        beside_data = tmp_path
    monkeypatch.chdir(beside_data)
    test.globs = {"ck": ck, "spark": spark}
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    runner.run(test, out=report.append, clear_globs=False)
    assert not runner.failures, "".join(report)

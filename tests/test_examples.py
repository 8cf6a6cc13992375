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


@pytest.mark.spark
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_says(
    name: str, spark: SparkSession, flights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test, report = EXAMPLES[name], list[str]()
    # As in a notebook that stands beside a folder of data, for those that name it.
    if any(re.search(r"\bdata\b", example.source) for example in test.examples):
        folders.copy(flights, tmp_path / "data" / "flights")
    monkeypatch.chdir(tmp_path)
    test.globs = {"ck": ck, "spark": spark}
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    runner.run(test, out=report.append, clear_globs=False)
    assert not runner.failures, "".join(report)

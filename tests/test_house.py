"""Imports go one way, and CONTRIBUTING.md shows the house as it is."""

import importlib.util
from graphlib import TopologicalSorter
from types import ModuleType

import pytest

from tests.test_project import ROOT

# Widgets take a second to import, and scripts want none (`compaction_kit.workbench`).
HIDDEN = ["compaction_kit: from compaction_kit.widgets import workbench"]


@pytest.fixture(scope="module")
def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", ROOT / "docs/house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_module_imports_itself_by_way_of_others(house: ModuleType) -> None:
    # It raises a CycleError that names them.
    assert len(list(TopologicalSorter(house.imports()).static_order())) > 50


def test_no_room_imports_itself_by_way_of_others(house: ModuleType) -> None:
    assert next(iter(TopologicalSorter(house.rooms(house.imports())).static_order())) == "base"


def test_imports_stand_at_the_top_of_modules(house: ModuleType) -> None:
    assert house.hidden_imports() == HIDDEN


def test_the_picture_is_of_the_house(house: ModuleType) -> None:
    assert house.drawing() in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

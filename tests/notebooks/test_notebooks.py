"""What the notebooks look like in the repository; that they run is nbval's part."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").rglob("*.ipynb"))
NO_MORE_LINES_THAN = 20


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.name)
def notebook(request: pytest.FixtureRequest) -> Any:
    return nbformat.read(request.param, as_version=4)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_outputs_are_stripped(notebook: Any) -> None:
    assert all(not cell.outputs and cell.execution_count is None for cell in code_cells(notebook))


def test_no_cell_names_a_path_of_somebody_s_machine(notebook: Any) -> None:
    absolute = re.compile(r"""["'(](/(?:home|root|Users|work|tmp|var|opt)/|[A-Z]:\\)""")
    assert not [cell.source for cell in notebook.cells if absolute.search(cell.source)]


def test_cells_are_short_and_never_three_in_a_row(notebook: Any) -> None:
    assert all(len(cell.source.splitlines()) <= NO_MORE_LINES_THAN for cell in code_cells(notebook))
    kinds = "".join("c" if cell.cell_type == "code" else "m" for cell in notebook.cells)
    assert "ccc" not in kinds


def test_it_starts_with_a_title(notebook: Any) -> None:
    assert notebook.cells[0].source.startswith("# ")

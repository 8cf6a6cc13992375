"""The folder that the front ends serve."""

from pathlib import Path

import pytest

from tests.browser.analyst import serve_folder


@pytest.fixture(scope="module")
def root(flights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for one front end alone, because its tests change the folder."""
    return serve_folder(flights, tmp_path_factory.mktemp("served"))

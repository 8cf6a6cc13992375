"""What the front ends serve."""

import os
from pathlib import Path

import pytest

from tests.browser.analyst import TWENTY_DAYS, YEAR, Days, serve_folder


@pytest.fixture(scope="session")
def days(by_night: bool) -> Days:
    """The flights that are served: those of a whole year for pictures, and where there is time."""
    return YEAR if "SCREENSHOTS" in os.environ or by_night else TWENTY_DAYS


@pytest.fixture(scope="module")
def root(flights: Path, days: Days, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for one front end alone: what is clicked there changes it."""
    return serve_folder(flights, days, tmp_path_factory.mktemp("served"))

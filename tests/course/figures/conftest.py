"""The course's figures are as legible as the kit's."""

from tests.plots.conftest import _every_text_is_legible  # noqa: F401

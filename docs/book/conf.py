"""Sphinx's settings for the book, which `make book` builds. The book needs nothing from a network."""

import hashlib
import os
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "book"))
# Notebooks run in temporary folders, but import the course, which is beside the lessons.
os.environ["PYTHONPATH"] = str(ROOT / "notebooks")

import pages  # noqa: E402

pages.write_pages()

project = "compaction_kit"
author = copyright = "the authors of compaction_kit, Apache-2.0"
language = "en"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]


# Reuse cached outputs until a cell, the package or the course changes.
_source = hashlib.sha256()
for _file in sorted(
    file
    for file in (*(ROOT / "compaction_kit").rglob("*.*"), *(ROOT / "notebooks" / "course").rglob("*.*"))
    if file.suffix != ".pyc"
):
    _source.update(_file.read_bytes())
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / ".book" / "outputs" / _source.hexdigest()[:16])
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
nb_custom_formats = {".ipynb": "pages.read_notebook"}
# A page has no kernel, so it shows the static HTML of a widget and loads no scripts for widgets.
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

# A name in single backticks is a link if the reference has that name, otherwise code.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "set"}  # matplotlib writes one into each Figure
autodoc_typehints = "description"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_use_ivar = True

html_theme = "sphinx_book_theme"
html_title = "compaction_kit"
html_static_path = ["book.css"]
html_css_files = ["book.css"]
html_copy_source = False
html_theme_options = {
    "show_toc_level": 2,
    "show_navbar_depth": 1,
    "use_download_button": False,
    "repository_url": pages.REPOSITORY,
    "use_repository_button": True,
    # The side bar has a search. Without a second one, the bar above the page is empty and takes no space.
    "navbar_persistent": [],
}
linkcheck_timeout = 20


def setup(app: Any) -> None:
    """Link lesson numbers on the lecturers' page, and show the Mermaid diagram in CONTRIBUTING as text.

    Remove the space between names that share a description ("version, table_id: …"), because Sphinx reads
    the first of two words as a type.
    """
    changes = {
        "lecturers": pages.link_lessons,
        "CONTRIBUTING": lambda text: text.replace("```mermaid", "```text"),
    }

    def change(_: Any, page: str, source: list[str]) -> None:
        source[0] = changes.get(page, str)(source[0])

    def join_names(_: Any, __: str, ___: str, ____: object, _____: object, lines: list[str]) -> None:
        shared = re.compile(r"^ +([a-z]\w*, )+[a-z]\w*: ")
        lines[:] = [shared.sub(lambda names: names[0].replace(", ", ","), line) for line in lines]

    app.connect("source-read", change)
    app.connect("autodoc-process-docstring", join_names, priority=400)  # before napoleon's

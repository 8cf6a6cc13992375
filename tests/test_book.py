"""Check that the book is complete; `make book` checks its links, and runs its notebooks."""

import importlib
import pkgutil
import re
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

import compaction_kit as ck
from tests.test_project import ROOT

BOOK = ROOT / "docs" / "book"
LESSONS = sorted(path.relative_to(ROOT) for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))
NOTEBOOKS = [*LESSONS, *(Path(f"notebooks/solutions/{path.stem}_solution.ipynb") for path in LESSONS)]
# Modules for the executors of a cluster, or whose names are those of the package that contains them.
INNER = {"compaction_kit.arrow.worker", "compaction_kit.arrow.concat", "compaction_kit.plots.figures"}


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BOOK)
    monkeypatch.delitem(sys.modules, "pages", raising=False)
    return importlib.import_module("pages")


def test_the_reference_has_every_public_name(pages: ModuleType) -> None:
    found = pkgutil.walk_packages(ck.__path__, "compaction_kit.")
    names = {"compaction_kit", *(module.name for module in found)} - INNER
    modules = [module for module in map(importlib.import_module, names) if hasattr(module, "__all__")]
    assert len(modules) > 9
    text = "\n".join(pages.reference().values())
    public = {f"{module.__name__}.{name}" for module in modules for name in module.__all__}
    assert sorted(name for name in public if not re.search(rf"(?m)[` ]{re.escape(name)}\b`*$", text)) == []


def test_lessons_are_in_the_contents_and_on_the_lecturers_page(pages: ModuleType) -> None:
    contents = re.findall(r"(?m)^notebooks/\S+$", (BOOK / "index.md").read_text(encoding="utf-8"))
    linked = pages.link_lessons((BOOK / "lecturers.md").read_text(encoding="utf-8"))
    for lesson in LESSONS:
        assert any(map(lesson.match, contents)), lesson
        assert pages.copied()[str(lesson)].samefile(ROOT / lesson)
        assert f"| {{doc}}`{lesson.name[:2]} <notebooks/{lesson.stem}>` |" in linked


def test_no_text_of_a_notebook_is_taken_for_a_directive() -> None:
    r"""In MyST, code such as `f"{path}`" within single backticks would be a role."""
    cells = [cell for path in NOTEBOOKS for cell in nbformat.read(ROOT / path, as_version=4).cells]
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    assert [text for text in texts if re.search(r"\{\w+\}`", re.sub(r"(?s)``.*?``", "", text))] == []


def test_pages_that_the_readme_leads_to_are_there() -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert "docs/book/python.md" in links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_a_page_links_to_its_notebook_and_changes_no_code(pages: ModuleType) -> None:
    name, path = next(iter(pages.copied().items()))
    page = nbformat.reads(pages.link_notebook(name, path.read_text(encoding="utf-8")), as_version=4)
    notebook = nbformat.read(path, as_version=4)
    title, _, links, *_ = page.cells[0].source.splitlines()
    assert title == notebook.cells[0].source.splitlines()[0]
    assert f"https://github.com/compaction-kit/compaction_kit/blob/main/{name})" in links
    assert f"https://mybinder.org/v2/gh/compaction-kit/compaction_kit/main?urlpath=lab/tree/{name})" in links
    assert page.cells[1:] == notebook.cells[1:]


def test_links_of_a_page_lead_to_pages_or_to_files_of_the_repository(pages: ModuleType) -> None:
    outward = re.compile(r"\]\(https://github.com/compaction-kit/compaction_kit/blob/main/([^)]+)\)")
    found = set()
    notebooks = {name: path for name, path in pages.copied().items() if path.suffix == ".ipynb"}
    for name, path in notebooks.items():
        for cell in nbformat.reads(pages.link_notebook(name, path.read_text(encoding="utf-8")), 4).cells:
            found |= set(outward.findall(cell.source)) - {name}
    assert "notebooks/workbench.ipynb" in found
    assert [name for name in sorted(found) if not (ROOT / name).is_file() or name in pages.copied()] == []

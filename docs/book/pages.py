"""The book's pages that come from elsewhere: the reference, the notebooks, and the repository's own pages."""

import importlib
import inspect
import posixpath
import re
import tomllib
from pathlib import Path
from types import ModuleType

import nbformat

import compaction_kit as ck

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Homepage"]
# The pages of the reference with their modules, in the order of CONTRIBUTING.md's story.
ROOMS = {
    "Tables and files": (
        "compaction_kit",
        "compaction_kit.table",
        "compaction_kit.files",
        "compaction_kit.log",
    ),
    "Plans": (
        "compaction_kit.compaction",
        "compaction_kit.plan",
        "compaction_kit.predict_reads",
        "compaction_kit.forecast",
    ),
    "Runs and proof": ("compaction_kit.execute", "compaction_kit.verify", "compaction_kit.reads"),
    "History and vacuum": ("compaction_kit.history", "compaction_kit.vacuum"),
    "Many tables": ("compaction_kit.discovery", "compaction_kit.surveys", "compaction_kit.audits"),
    "Logs of file sinks": ("compaction_kit.sinklog",),
    "Other readers and formats": ("compaction_kit.interop",),
    "Figures": ("compaction_kit.plots",),
    "Widgets and reports": ("compaction_kit.widgets", "compaction_kit.report"),
    "Practice tables": ("compaction_kit.datasets",),
    "Sessions, storage and errors": (
        "compaction_kit.session",
        "compaction_kit.storage",
        "compaction_kit.errors",
    ),
}


def public_names(module: ModuleType) -> list[str]:
    """Return the public names of a module: its `__all__`, or the functions and classes that it defines."""
    named = getattr(module, "__all__", None)
    own = (
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    )
    return list(named or (name for name in own if not name.startswith("_")))


def reference() -> dict[str, str]:
    """Return the reference's pages by name: reStructuredText that autodoc fills with the docstrings."""
    pages, places = dict[str, str](), dict[int, str]()
    for title, modules in ROOMS.items():
        lines = [title, "=" * len(title), ""]
        for name in modules:
            module = importlib.import_module(name)
            # A function with the name of its module hides the module in the package.
            twice = inspect.isfunction(getattr(ck, name.rpartition(".")[2], None))
            about = [f".. automodule:: {name}", "   :no-members:", "   :no-index:" * twice, ""]
            lines += [name, "-" * len(name), "", *about]
            for public in public_names(module):
                lines += [*_entry(f"{name}.{public}", getattr(module, public), places), ""]
        pages[title.lower().replace(" ", "-").replace(",", "")] = "\n".join(lines)
    contents = ["Reference", "=========", "", ".. toctree::", "   :maxdepth: 2", ""]
    pages["index"] = "\n".join([*contents, *(f"   {page}" for page in pages), ""])
    return pages


def _entry(path: str, value: object, places: dict[int, str]) -> list[str]:
    """Return the lines for a name: its docstring at the first place, links to that place at later ones."""
    first = places.setdefault(id(value), path)
    if isinstance(value, ModuleType):
        return [f"``{path}``", f"   See :py:mod:`{value.__name__}`."]
    if first != path:
        return [f"``{path}``", f"   See :py:obj:`{first}`."]
    if inspect.isclass(value):
        return [f".. autoclass:: {path}", "   :members:", "   :show-inheritance:"]
    return [f".. {'autofunction' if callable(value) else 'autodata'}:: {path}"]


def copied() -> dict[str, Path]:
    """Return the pages that are files elsewhere in the repository, by their path in the book."""
    places = "[0-9]*.ipynb", "tour.ipynb", "museum.ipynb", "solutions/*.ipynb"
    notebooks = (path for place in places for path in (ROOT / "notebooks").glob(place))
    pages = (*notebooks, ROOT / "RELIABILITY.md", ROOT / "CONTRIBUTING.md")
    return {path.relative_to(ROOT).as_posix(): path for path in pages}


def write_pages() -> None:
    """Write the reference's pages and copy the others; unchanged pages keep their modification time."""
    pages = {f"api/{name}.rst": text for name, text in reference().items()}
    pages |= {name: link_notebook(name, path.read_text(encoding="utf-8")) for name, path in copied().items()}
    for name, text in pages.items():
        page = FOLDER / name
        page.parent.mkdir(parents=True, exist_ok=True)
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")
    for page in (FOLDER / "notebooks").rglob("*.ipynb"):
        if page.relative_to(FOLDER).as_posix() not in pages:
            page.unlink()


def link_notebook(name: str, text: str) -> str:
    """Put links below a notebook's title: to the notebook in the repository, and to Binder, which runs it.

    Links to files that are not pages of the book lead to the repository too.
    """

    def outward(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link[1]))
        return link[0] if target in pages else f"]({REPOSITORY}/blob/main/{target})"

    if not name.endswith(".ipynb"):
        return text
    notebook, pages = nbformat.reads(text, as_version=4), copied()
    source, binder = f"{REPOSITORY}/blob/main/{name}", REPOSITORY.replace("github.com", "mybinder.org/v2/gh")
    binder += f"/main?urlpath=lab/tree/{name}"
    links = f"*[The notebook]({source}) of this page; [run it in Binder]({binder})*"
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\]\(([\w./]+\.\w+)\)", outward, cell.source)
    title, _, rest = notebook.cells[0].source.partition("\n")
    notebook.cells[0].source = f"{title}\n\n{links}\n{rest}"
    return nbformat.writes(notebook)


def read_notebook(text: str) -> nbformat.NotebookNode:
    """Read a notebook; cells that are folded in Jupyter are folded in the book."""
    notebook = nbformat.reads(text, as_version=4)
    for cell in notebook.cells:
        if cell.metadata.get("jupyter", {}).get("source_hidden"):
            cell.metadata["tags"] = ["hide-input"]
    return notebook


def link_lessons(text: str) -> str:
    """Turn the lesson number at the beginning of each table row into a link."""
    for lesson in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        number = lesson.name[:2]
        text = text.replace(f"\n| {number} |", f"\n| {{doc}}`{number} <notebooks/{lesson.stem}>` |")
    return text

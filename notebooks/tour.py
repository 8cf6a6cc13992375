"""Run the tour's notebook without a browser, save it as a page, and print its summary.

python notebooks/tour.py [notebook] [page]
"""

import copy
import re
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter

MINUTES_PER_CELL = 10
WIDGET = "application/vnd.jupyter.widget-view+json"


def run_notebook(notebook: Path, page: Path) -> str:
    """Run a notebook and write it with its figures as one HTML page.

    Args:
        notebook: The notebook to run, in a kernel of its own, in its own folder; it isn't changed.
        page: The HTML file to write; it needs no other file and no network.

    Returns:
        The output of the last cell that prints.

    Raises:
        CellExecutionError: A cell failed; the page is written up to there.
    """
    content = nbformat.read(notebook, as_version=4)
    start = time.monotonic()
    figures = list[str]()

    def narrate(cell: Any, **_: Any) -> None:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            print(f"\n{cell.source.splitlines()[0][3:]}", flush=True)
        if cell.cell_type == "code":
            first_line = cell.source.lstrip("# \n").partition("\n")[0]
            print(f"{time.monotonic() - start:6.1f} s  {first_line[:90]}", flush=True)

    def show(cell: Any, **_: Any) -> None:
        if found := re.findall(r'aria-label="([^"]+)', str(cell.get("outputs"))):
            print(f"          figure: {found[0]}", flush=True)
            if not figures:
                page.write_text(to_html(content), encoding="utf-8")
                print(f"{time.monotonic() - start:6.1f} s  {page} shows the first figure", flush=True)
            figures.extend(found)

    client = NotebookClient(
        content,
        kernel_name="python3",
        # Don't show the warning of each kernel that its sockets, on the loopback, are not encrypted.
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        timeout=60 * MINUTES_PER_CELL,
        resources={"metadata": {"path": str(notebook.parent)}},
        store_widget_state=False,
        on_cell_start=narrate,
        on_cell_executed=show,
    )
    try:
        client.execute()
    finally:
        page.write_text(to_html(content), encoding="utf-8")
    cells = (cell.outputs for cell in content.cells if cell.cell_type == "code")
    printed = ["".join(o.text for o in outputs if o.get("name") == "stdout") for outputs in cells]
    return next(filter(None, reversed(printed)), "")


def to_html(content: Any) -> str:
    """Return a notebook as an HTML page, without its widgets."""
    content = copy.deepcopy(content)
    for cell in content.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if WIDGET not in output.get("data", {})]
    exporter = HTMLExporter(template_name="lab")
    # Leave out scripts that the page would load from the network.
    exporter.require_js_url = exporter.mathjax_url = exporter.mermaid_js_url = ""
    body, _ = exporter.from_notebook_node(content)
    return str(body)


def main(notebook: str = "notebooks/tour.ipynb", page: str = "tour.html") -> int:
    """Run the tour; return the exit code."""
    start = time.monotonic()
    try:
        summary = run_notebook(Path(notebook), Path(page))
    except CellExecutionError as error:
        print(f"\nThe tour stopped: {error.ename}: {error.evalue}", file=sys.stderr)
        return 1
    print(f"\n{summary}\nThe figures are in {page}; the tour took {time.monotonic() - start:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

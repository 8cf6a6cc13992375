"""The tour without a browser: run its notebook, keep the page, print the summary.

python -m compaction_kit.tour [notebook] [page]
"""

import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter

_MINUTES_PER_CELL = 10


def run_tour(notebook: Path, page: Path) -> str:
    """Run a notebook and write it with its figures as one HTML page.

    Args:
        notebook: What to run, in a kernel of its own, in its own folder; it isn't changed.
        page: The HTML file to write; it needs no other file and no network.

    Returns:
        What the notebook's last cell that prints has printed.

    Raises:
        CellExecutionError: A cell failed; the page is written up to there.
    """
    content = nbformat.read(notebook, as_version=4)
    client = NotebookClient(
        content,
        kernel_name="python3",
        # Else each kernel warns that its sockets, on the loopback, are not encrypted.
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        timeout=60 * _MINUTES_PER_CELL,
        resources={"metadata": {"path": str(notebook.parent)}},
        store_widget_state=False,
        on_cell_executed=_Narrator(),
    )
    try:
        client.execute()
    finally:
        page.write_text(_to_html(content), encoding="utf-8")
    return _last_print(content)


class _Narrator:
    """Prints each heading when the cells below it begin, with the seconds so far."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self, cell: Any, cell_index: int, **_: Any) -> None:
        seconds = time.monotonic() - self._start
        heading = next((line for line in cell.source.splitlines() if line.strip()), "")
        if cell.cell_type == "code":
            print(f"{seconds:6.1f} s  {heading[:90]}", flush=True)


def _to_html(content: Any) -> str:
    for cell in content.cells:
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if not _is_widget(o)]
    exporter = HTMLExporter(template_name="lab")
    # Scripts from the network that the page does without.
    exporter.require_js_url = exporter.mathjax_url = exporter.mermaid_js_url = ""
    body, _ = exporter.from_notebook_node(content)
    return str(body)


def _is_widget(output: Any) -> bool:
    return "application/vnd.jupyter.widget-view+json" in output.get("data", {})


def _last_print(content: Any) -> str:
    printed = [
        "".join(o.text for o in cell.outputs if o.output_type == "stream" and o.name == "stdout")
        for cell in content.cells
        if cell.cell_type == "code"
    ]
    return next((text for text in reversed(printed) if text), "")


def main(arguments: list[str]) -> int:
    """Run the tour; the exit code."""
    notebook = Path(arguments[0] if arguments else "notebooks/tour.ipynb")
    page = Path(arguments[1] if len(arguments) > 1 else "tour.html")
    start = time.monotonic()
    try:
        summary = run_tour(notebook, page)
    except CellExecutionError as error:
        print(f"\nThe tour stopped: {error.ename}: {error.evalue}", file=sys.stderr)
        return 1
    print(f"\n{summary}\nThe figures are in {page}; the tour took {time.monotonic() - start:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

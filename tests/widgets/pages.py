"""Helpers for tests of a page: find a widget by its class, click, wait."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import ipywidgets as w

from compaction_kit.widgets.job import Job, Lookup
from compaction_kit.widgets.page import Page
from compaction_kit.widgets.parts import within
from compaction_kit.widgets.workbench import Workbench

SECONDS = 60
P = TypeVar("P", bound=Page)


def settle(page: P) -> P:
    """Wait until all jobs have ended; showing the result of one may start another."""
    for job in page.jobs * 3:
        job.wait(SECONDS)
    failed = [one.value for one in within([page]) if "ck-drawing-error" in one._dom_classes and one.value]
    assert not failed, failed
    return page


@contextmanager
def held(job: Job, *question: object, reports: bool = False, found: object = None) -> Iterator[None]:
    """Keep a job running, or a lookup busy with a question, while the block runs."""
    begun, go = threading.Event(), threading.Event()

    def work(running: Job) -> object:
        begun.set()
        go.wait(SECONDS)
        if reports:
            running.report(0.5, "working")
        return found

    if isinstance(job, Lookup) and question:
        job.ask(work, *question)
    else:
        job.start(work)
    assert begun.wait(SECONDS)
    yield
    go.set()
    job.wait(SECONDS)


def show(bench: Workbench, title: str) -> None:
    """Click a part in the rail, and wait for it."""
    bench.rail.value = title
    settle(bench)


def places(page: w.Widget, part: str) -> list[w.Widget]:
    """A page, or one of its parts."""
    return [one for one in page.parts if one.title == part] if part else [page]


def at(page: w.Widget, css_class: str, part: str = "") -> Any:
    """The widget of a class in a page, or in one of its parts."""
    return next(one for one in within(places(page, part)) if css_class in one._dom_classes)


def folds(page: w.Widget, part: str = "") -> w.Accordion:
    """Return the folded sections of a page, or of one of its parts."""
    return next(one for one in within(places(page, part)) if isinstance(one, w.Accordion))


def is_shown(widget: w.Widget) -> bool:
    return bool(widget.layout.display != "none")


def words(widget: w.Widget) -> str:
    """Return the text that is shown in a widget, with plain spaces and without elements around dates."""
    if widget.layout.display == "none":
        return ""
    inner = "".join(map(words, getattr(widget, "children", ())))
    shown = f"{widget.value}{inner}" if isinstance(widget, w.HTML) else inner
    return re.sub(r"</?span[^>]*>", "", shown).replace("\xa0", " ")


def said(page: w.Widget, css_class: str, part: str = "") -> str:
    """Return the text that is shown in the widget of a class."""
    return words(at(page, css_class, part))


def choose(bench: Workbench, **inputs: Any) -> None:
    """Set inputs of the state, and wait for what follows."""
    for name, value in inputs.items():
        setattr(bench.state, name, value)
    settle(bench)


def enter(page: Page, css_class: str, value: Any) -> None:
    """Set the value of a field or a dropdown, and wait for what follows."""
    at(page, css_class).value = value
    settle(page)


def click(page: Page, css_class: str, part: str = "") -> None:
    """Click a button, and wait for what it does."""
    at(page, css_class, part).click()
    settle(page)

"""State that views watch, and long work in the background, which is told in the same way."""

import threading
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from traitlets import All, Bunch, Enum, EventHandler, Float, HasTraits, Unicode
from traitlets import Any as AnyTrait
from traitlets.log import get_logger

from compaction_kit.errors import CompactionKitError, RunCancelled

Work = Callable[["Job"], Any]


class Watched(HasTraits):
    """Traits that are watched by views, none of which can stop another or whoever sets the trait.

    traitlets lets an observer's exception pass: those that come after it are not called, and what was
    to be done after the trait was set is left out.
    """

    def observe(self, handler: Callable[[Any], object], names: Any = All, type: Any = "change") -> None:
        """See `HasTraits.observe`; what the handler raises is logged, as ipywidgets does it."""
        own = isinstance(handler, EventHandler)
        super().observe(handler if own else _contained(handler), names, type)

    def tell_fields(self, change: Any) -> None:
        """Call who watches a field of a record that was replaced, by the field's name."""
        for field in fields(change.new):
            old, new = getattr(change.old, field.name), getattr(change.new, field.name)
            if old is not new and not (isinstance(new, str) and new == old):
                self.notify_change(Bunch(name=field.name, old=old, new=new, owner=self, type="change"))


def _contained(handler: Callable[[Any], object]) -> Callable[[Any], None]:
    def call(change: Any) -> None:
        try:
            handler(change)
        except Exception:
            get_logger().warning("A view failed to show %s", change.name, exc_info=True)

    return call


def sentence_of(error: Exception) -> str:
    """What to say of an error in the page: the kit's own sentence, or that it was not expected."""
    if isinstance(error, CompactionKitError):
        return str(error)
    first = next(iter(str(error).strip().splitlines()), "no message")
    return f"Unexpected {type(error).__name__}: {first}"


class Job(Watched):
    """One piece of work at a time, in a thread of its own.

    The work is called with the job, calls `report()` now and then, and is cancelled by an
    exception raised from there.
    """

    status = Enum(["idle", "running", "done", "failed", "cancelled"], "idle")
    progress = Float(0.0, min=0, max=1, help="The share that is done")
    message = Unicode("", help="What it is at, or how it ended, in one sentence")
    details = Unicode("", help="More about a failure, for whoever wants to know")
    result = AnyTrait(None, help="What the work returned")

    def __init__(self) -> None:
        super().__init__()
        self._cancel = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._busy = False
        self._next: Work | None = None

    @property
    def running(self) -> bool:
        """Whether work is under way."""
        return bool(self.status == "running")

    def start(self, work: Work) -> bool:
        """Begin, unless work is under way; says whether it began."""
        with self._lock:
            if self._busy:
                return False
            self._busy = True
        self._begin()
        self._thread = threading.Thread(target=self._run, args=(work,), name="Job", daemon=True)
        self._thread.start()
        return True

    def start_next(self, work: Work) -> None:
        """Begin as soon as the work under way has ended; whoever asks last gets it."""
        with self._lock:
            if self._busy:
                self._next = work
                return
        self.start(work)

    def cancel(self) -> None:
        """Ask the work to stop at its next report."""
        with self._lock:
            self._next = None
        if self.running:
            self._cancel.set()
            self.message = "Cancelling"

    def reset(self) -> None:
        """Forget how the last work ended; work that is under way goes on."""
        if not self.running:
            self.status, self.progress, self.message, self.details, self.result = "idle", 0.0, "", "", None

    def report(self, progress: float, message: str) -> None:
        """Tell how far the work is; raises `RunCancelled` if it was asked to stop."""
        if self._cancel.is_set():
            raise RunCancelled("Cancelled: nothing was changed.")
        self.progress, self.message = min(1.0, max(self.progress, progress)), message

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the work has ended."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _begin(self) -> None:
        self._cancel.clear()
        self.progress, self.message, self.details, self.result = 0.0, "Starting", "", None
        self.status = "running"

    def _run(self, work: Work | None) -> None:
        while work is not None:
            self._do(work)
            with self._lock:
                work, self._next = self._next, None
                self._busy = work is not None
            if work is not None:
                self._begin()

    def _do(self, work: Work) -> None:
        try:
            self.result = work(self)
        except RunCancelled as error:
            self.message, self.status = str(error), "cancelled"
        except Exception as error:
            if not isinstance(error, CompactionKitError):
                # A surprise: still one sentence in the page, and the rest folded below it.
                self.details = str(error)
            self.message, self.status = sentence_of(error), "failed"
        else:
            self.progress, self.message, self.status = 1.0, "Done", "done"

"""Work in the background, which reports itself by state that views observe; and runs of plans."""

import atexit
import re
import threading
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from traitlets import All, Bunch, Enum, EventHandler, Float, HasTraits, Unicode
from traitlets import Any as AnyTrait
from traitlets.log import get_logger

from compaction_kit.errors import CompactionKitError, RunCancelled, StalePlanError
from compaction_kit.table import Table

# The page's fields for the arguments with which sentences of errors begin.
_LABELS = {
    "min_file_size": "Minimum file size",
    "max_file_size": "Target file size",
    "where": "Where",
    "order": "Order",
    "budget": "Budget",
    "retention": "Retention",
    "keep_versions": "Keep versions",
    "timestamp": "Time",
}
_ARGUMENT = re.compile(f"^({'|'.join([*_LABELS, *_LABELS.values()])})=")
# The end of the program waits for work under way this long at most.
_ENDING_SECONDS = 10.0
Work = Callable[["Job"], Any]
T = TypeVar("T")


class Watched(HasTraits):
    """Traits that views observe; no view can stop another one, or the code that sets the trait.

    In traitlets, an observer's exception ends the assignment: later observers are not called, and the code
    after it does not run.
    """

    def observe(self, handler: Callable[[Any], object], names: Any = All, type: Any = "change") -> None:
        """See `HasTraits.observe`; what the handler raises is logged, as in ipywidgets."""
        own = isinstance(handler, EventHandler)
        super().observe(handler if own else _logging_errors(handler), names, type)

    def observe_fields(self, name: str) -> None:
        """Notify the observers of a record's fields, by name, when the record in this trait is replaced."""
        # Its default is made when it is first read.
        getattr(self, name)
        self.observe(self._notify_fields, name)

    def _notify_fields(self, change: Any) -> None:
        for field in fields(change.new):
            old, new = getattr(change.old, field.name), getattr(change.new, field.name)
            if old is not new and not (isinstance(new, str) and new == old):
                self.notify_change(Bunch(name=field.name, old=old, new=new, owner=self, type="change"))


def _logging_errors(handler: Callable[[Any], object]) -> Callable[[Any], None]:
    def call(change: Any) -> None:
        try:
            handler(change)
        except Exception:
            get_logger().warning("A view failed to show %s", change.name, exc_info=True)

    return call


def sentence_of(error: Exception) -> str:
    """One sentence for the page: the kit's own, or that the error was not expected."""
    if isinstance(error, CompactionKitError):
        return _ARGUMENT.sub(lambda match: f"{_LABELS.get(match[1], match[1])}: ", str(error))
    first = next(iter(str(error).strip().splitlines()), "no message")
    return f"Unexpected {type(error).__name__}: {first}"


def attempt(call: Callable[[], T]) -> tuple[T | None, str]:
    """What a call returns and no sentence, or None and the sentence of its error."""
    try:
        return call(), ""
    except Exception as error:
        return None, sentence_of(error)


class Job(Watched):
    """One piece of work at a time, in a thread of its own.

    The work is called with the job and calls `report()` now and then, which raises if the job was cancelled.
    """

    status = Enum(["idle", "running", "done", "failed", "cancelled"], "idle")
    progress = Float(0.0, min=0, max=1, help="The share that is done")
    message = Unicode("", help="The current step, or how the work ended, in one sentence")
    details = Unicode("", help="The whole message of an unexpected error")
    result = AnyTrait(None, help="What the work returned")

    def __init__(self) -> None:
        super().__init__()
        self._cancel = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._busy = False
        self._next: Work | None = None
        _JOBS.add(self)

    @property
    def running(self) -> bool:
        """Whether work is under way."""
        return bool(self.status == "running")

    def start(self, work: Work) -> bool:
        """Begin, unless work is under way; returns whether it began."""
        with self._lock:
            if self._busy:
                return False
            self._busy = True
        self._begin()
        self._thread = threading.Thread(target=self._run, args=(work,), name="Job", daemon=True)
        self._thread.start()
        return True

    def start_next(self, work: Work) -> None:
        """Begin as soon as the work under way has ended; of several that wait, only the last one is done."""
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
        """Show how far the work is; raises `RunCancelled` if it was asked to stop."""
        if self._cancel.is_set():
            raise RunCancelled("Cancelled: nothing was changed.")
        self.progress, self.message = min(1.0, max(self.progress, progress)), message

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the work has ended."""
        if self._thread is not None:
            self._thread.join(seconds)

    @property
    def is_alive(self) -> bool:
        """Whether the thread of the work, and of what observes it, is still there."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self, seconds: float) -> None:
        """Ask the work to stop, without showing it, and wait for its end."""
        self._next = None
        self._cancel.set()
        self.wait(seconds)

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
                self.details = str(error)
            self.message, self.status = sentence_of(error), "failed"
        else:
            self.progress, self.message, self.status = 1.0, "Done", "done"


_JOBS: "WeakSet[Job]" = WeakSet()


@atexit.register
def _end_jobs() -> None:
    """Stop all work before Python ends, and wait for it.

    A thread that comes back to Python from C++ later, as from Matplotlib's fonts, aborts the process.
    """
    end = time.monotonic() + _ENDING_SECONDS
    while (alive := [job for job in list(_JOBS) if job.is_alive]) and time.monotonic() < end:
        for job in alive:
            job.stop(0.05)


class Bench(Protocol):
    """What has an open table, and reads it again."""

    @property
    def table(self) -> Table | None:
        """The open table, or None."""

    def reload(self) -> None:
        """Read the table again."""


class Runs(Watched):
    """Runs of plans, one at a time, in the background."""

    result = AnyTrait(None, help="The result of the last run, or None")
    ran = Unicode("", help="The table of the last run, or of the one that is under way")

    def __init__(self) -> None:
        super().__init__()
        self.running = Job()

    def forget_run(self) -> None:
        """Forget the last run; one that is under way goes on."""
        self.result = None
        self.ran = self.ran if self.running.running else ""
        self.running.reset()

    def of_another_table(self, name: str) -> str:
        """What to say above a run if it is of another table than the one of this name."""
        is_other = self.ran not in ("", name)
        return f"What follows is of {self.ran}, which was open when it began." if is_other else ""

    def start_run(self, bench: Bench, table: Table, run: Callable[[Job], Any]) -> bool:
        """Run a plan of a table, and read the table again if it is still open; returns whether it began."""

        def work(job: Job) -> None:
            self.result = None
            self.ran = table.name
            try:
                result = run(job)
            finally:
                # After a failure too: other writers may have committed meanwhile.
                if table is bench.table:
                    bench.reload()
            self.result = result

        return self.running.start(work)

    def refuse(self, sentence: str) -> bool:
        """Say in the run's place why nothing is run; returns whether it could be said."""

        def work(_: Job) -> None:
            raise StalePlanError(sentence)

        return self.running.start(work)

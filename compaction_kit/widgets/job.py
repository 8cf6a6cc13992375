"""Work in the background, which reports itself by traits that views observe."""

import atexit
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from traitlets import Any as AnyTrait
from traitlets import Enum, Float, HasTraits, Instance, Unicode

from compaction_kit.errors import CompactionKitError, RunCancelled, first_line
from compaction_kit.session import JAVA_ENDED, has_java_ended

# The argument with which the sentence of an error begins: the page's field has its name.
_ARGUMENT = re.compile(r"^([A-Za-z_ ]+)=")
# The end of the program waits for work under way this long at most.
_ENDING_SECONDS = 10.0
_CANCELLED = "Cancelled: nothing was changed."
Work = Callable[["Job"], Any]
T = TypeVar("T")


def sentence_of(error: Exception) -> str:
    """Return an error as one sentence for the page."""
    if isinstance(error, CompactionKitError):
        text = re.sub(r"^(version|before|after)=(?=\d)", "Version ", str(error))
        text = text.replace("table.versions()", "History")
        return _ARGUMENT.sub(lambda match: f"{match[1].replace('_', ' ').capitalize()}: ", text)
    if has_java_ended(error):
        return f"{JAVA_ENDED}."
    return f"Unexpected {type(error).__name__}: {first_line(error)}"


def attempt(call: Callable[[], T]) -> tuple[T | None, str]:
    """Return what a call returns and "", or None and the sentence of its error."""
    try:
        return call(), ""
    except Exception as error:
        return None, sentence_of(error)


def same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return whether two tuples hold the same records, and equal texts and numbers."""
    pairs = zip(one, other, strict=False)
    equal = (a is b or (isinstance(a, (str, int)) and a == b) for a, b in pairs)
    return len(one) == len(other) and all(equal)


class Job(HasTraits):
    """One piece of work at a time, in a thread of its own.

    The work is called with the job and calls `report()` now and then, which raises if the job was cancelled.
    """

    status = Enum(["idle", "running", "done", "failed", "cancelled"], "idle")
    progress = Float(0.0, min=0, max=1, help="The share that is done")
    message = Unicode("", help="The current step, or how the work ended, in one sentence")
    details = Unicode("", help="The whole message of an unexpected error")
    result = AnyTrait(None, help="What the work returned")
    about = Unicode("", help="The table that the work is about")

    def __init__(self, scope: str = "", stops: str = "Stop; nothing is changed") -> None:
        super().__init__()
        # Together with what a state forgets the result, and what it means to cancel the work.
        self.scope, self.stops = scope, stops
        self._cancel = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._busy, self._ending = False, False
        self._next: tuple[Work, str] | None = None
        _JOBS.add(self)

    @property
    def running(self) -> bool:
        """Whether work is under way."""
        return bool(self.status == "running")

    @property
    def error(self) -> str:
        """Why the work ended without a result, in one sentence."""
        return str(self.message) if self.status in ("failed", "cancelled") else ""

    def start(self, work: Work, about: str = "", waits: bool = False) -> bool:
        """Begin, unless work is under way; returns whether it begins. See `start_next` for `waits`."""
        with self._lock:
            # Views see that the last work has ended before its thread, which calls them, is free.
            if self._busy and (waits or (self._ending and self._next is None)):
                self._next = work, about
                return True
            if self._busy:
                return False
            self._busy = True
        self._begin(about)
        self._thread = threading.Thread(target=self._run, args=(work,), name="Job", daemon=True)
        self._thread.start()
        return True

    def start_next(self, work: Work) -> None:
        """Begin as soon as the work under way has ended; if several wait, only the last one begins."""
        self.start(work, waits=True)

    def cancel(self) -> None:
        """Ask the work to stop at its next report."""
        self._next = None
        if self.running:
            self._cancel.set()
            self.message = "Cancelling"

    def forget(self, _: object = None) -> None:
        """Forget how the last work ended; work that is under way goes on."""
        if not self.running:
            self.status, self.progress, self.message, self.details = "idle", 0.0, "", ""
            self.result, self.about = None, ""

    def report(self, progress: float, message: str) -> None:
        """Show the progress; raises `RunCancelled` if the work was asked to stop."""
        if self._cancel.is_set():
            raise RunCancelled(_CANCELLED)
        self.progress, self.message = min(1.0, max(self.progress, progress)), message

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the work has ended."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _begin(self, about: str) -> None:
        self._cancel.clear()
        self.progress, self.message, self.details, self.result = 0.0, "Starting", "", None
        self.about, self.status = about, "running"

    def _run(self, work: Work) -> None:
        following: tuple[Work, str] | None = work, ""
        while following is not None:
            status, message = "done", "Done"
            try:
                self.result = following[0](self)
            except RunCancelled as error:
                status, message = "cancelled", str(error)
            except Exception as error:
                self.details = "" if isinstance(error, CompactionKitError) else str(error)
                status, message = "failed", sentence_of(error)
            self._ending = True
            self.progress = 1.0 if status == "done" else self.progress
            self.message, self.status = message, status
            with self._lock:
                following, self._next = self._next, None
                self._busy, self._ending = following is not None, False
            if following is not None:
                self._begin(following[1])


@dataclass(frozen=True, eq=False)
class Answer:
    """A question, as records, texts and numbers, and its answer; None if there is none."""

    question: tuple[Any, ...] = ()
    value: Any = None


class Lookup(Job):
    """A question that is answered in the background; the former answer stays until the next one comes."""

    answer = Instance(Answer, (), help="The last question that was answered, and the answer")
    # The last question that was asked, as far as it isn't forgotten.
    asked: tuple[Any, ...] = ()

    @property
    def value(self) -> Any:
        """The last answer, or None."""
        return self.answer.value

    def get(self, *question: Any) -> Any:
        """Return the answer to this question, or None as long as there is none."""
        answer = self.answer
        return answer.value if same(answer.question, question) else None

    def ask(self, work: Work, *question: Any, again: bool = False) -> None:
        """Find the answer to a question, unless it was the last one that was asked.

        With `again`, forget the last answer and find one in any case.
        """
        if again:
            self.forget()
        if not same(question, self.asked):
            self.asked = question
            self._cancel.set()
            if self._busy and not self.running:
                self.message, self.status = "Starting", "running"
            self.start_next(partial(self._look, work, question))

    def forget(self, _: object = None) -> None:
        """Forget the answer, and the work for it."""
        self.asked = ()
        # Before the answer goes: who sees that may ask at once.
        self._cancel.set()
        self.answer = Answer()
        super().forget()

    def cancel(self) -> None:
        """See `Job.cancel`; it ends at once, and a question that waits is dropped: it can be asked again."""
        if self._next is not None:
            self.asked = ()
        super().cancel()
        if self.running:
            # Work that only looks may go on, out of sight: see `ask`.
            self.message, self.status = _CANCELLED, "cancelled"

    def _look(self, work: Work, question: tuple[Any, ...], job: Job) -> None:
        answer = None
        # The same numbers may have been asked of another table meanwhile.
        try:
            if question is self.asked:
                found = work(job)
                # If it was cancelled meanwhile, what was found is no answer.
                job.report(job.progress, job.message)
                answer = found
        except Exception:
            # If another question was asked, nobody waits for this answer.
            if question is self.asked:
                raise
        finally:
            if question is self.asked:
                self.answer = Answer(question, answer)


_JOBS: "WeakSet[Job]" = WeakSet()


@atexit.register
def _end_jobs() -> None:
    # A thread that comes back to Python from C++ later, as from Matplotlib's fonts, aborts the process.
    end = time.monotonic() + _ENDING_SECONDS
    while time.monotonic() < end:
        # A process that was forked has none of the threads.
        alive = [job for job in list(_JOBS) if job._thread is not None and job._thread.is_alive()]
        if not alive:
            return
        for job in alive:
            job._next = None
            job._cancel.set()
            job.wait(0.05)

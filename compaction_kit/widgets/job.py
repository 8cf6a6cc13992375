"""Jobs in the background, with traits for their progress that views observe."""

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

# The argument at the beginning of an error's sentence; the page's field has the same name.
_ARGUMENT = re.compile(r"^([A-Za-z_ ]+)=")
# At exit, the program waits at most this long for running jobs.
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
    """One piece of work at a time, in its own thread.

    The work is called with the job and calls `report()` repeatedly, which raises if the job was cancelled.
    """

    status = Enum(["idle", "running", "done", "failed", "cancelled"], "idle")
    progress = Float(0.0, min=0, max=1, help="The share that is done")
    message = Unicode("", help="The current step, or how the work ended, in one sentence")
    details = Unicode("", help="The whole message of an unexpected error")
    result = AnyTrait(None, help="What the work returned")
    about = Unicode("", help="The table that the work is about")

    def __init__(self, scope: str = "", stops: str = "Stop; nothing is changed") -> None:
        super().__init__()
        # The scope with which a state forgets the result, and a text that says what cancelling does.
        self.scope, self.stops = scope, stops
        self._cancel = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._busy, self._ending = False, False
        self._next: tuple[Work, str] | None = None
        _JOBS.add(self)

    @property
    def running(self) -> bool:
        """Whether work is running."""
        return bool(self.status == "running")

    @property
    def error(self) -> str:
        """Why the work ended without a result, in one sentence."""
        return str(self.message) if self.status in ("failed", "cancelled") else ""

    def start(self, work: Work, about: str = "", waits: bool = False) -> bool:
        """Begin, unless work is running; returns whether it begins. See `start_next` for `waits`."""
        with self._lock:
            # The thread calls views when its work has ended, so they see the end before the thread is free.
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
        """Begin as soon as the running work has ended; if several wait, only the last one begins."""
        self.start(work, waits=True)

    def cancel(self) -> None:
        """Ask the work to stop at its next report."""
        self._next = None
        if self.running:
            self._cancel.set()
            self.message = "Cancelling"

    def forget(self, _: object = None) -> None:
        """Forget how the last work ended; running work goes on."""
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
    """A question of records, texts and numbers, and its answer; None if there is no answer."""

    question: tuple[Any, ...] = ()
    value: Any = None


class Lookup(Job):
    """A question that is answered in the background; the previous answer stays until the next one arrives."""

    answer = Instance(Answer, (), help="The last question that was answered, and the answer")
    # The last question, unless it was forgotten.
    asked: tuple[Any, ...] = ()

    @property
    def value(self) -> Any:
        """The last answer, or None."""
        return self.answer.value

    def get(self, *question: Any) -> Any:
        """Return the answer to this question; None while there is none."""
        answer = self.answer
        return answer.value if same(answer.question, question) else None

    def ask(self, work: Work, *question: Any, again: bool = False) -> None:
        """Find the answer to a question, unless it is the same as the last question.

        With `again`, forget the last answer and find a new one in any case.
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
        # Before the answer is removed, because views that see this may ask at once.
        self._cancel.set()
        self.answer = Answer()
        super().forget()

    def cancel(self) -> None:
        """See `Job.cancel`; the job ends at once, and a waiting question is dropped, to be asked again."""
        if self._next is not None:
            self.asked = ()
        super().cancel()
        if self.running:
            # Work that only reads may go on unseen; see `ask`.
            self.message, self.status = _CANCELLED, "cancelled"

    def _look(self, work: Work, question: tuple[Any, ...], job: Job) -> None:
        answer = None
        # Compared by identity, because an equal question may have been asked about another table meanwhile.
        try:
            if question is self.asked:
                found = work(job)
                # This raises an error if the work was cancelled meanwhile, so that the result is dropped.
                job.report(job.progress, job.message)
                answer = found
        except Exception:
            # If another question was asked, this answer isn't needed any more.
            if question is self.asked:
                raise
        finally:
            if question is self.asked:
                self.answer = Answer(question, answer)


_JOBS: "WeakSet[Job]" = WeakSet()


@atexit.register
def _end_jobs() -> None:
    # A thread that returns to Python from C++ after the exit, as from Matplotlib's fonts, aborts the process.
    end = time.monotonic() + _ENDING_SECONDS
    while time.monotonic() < end:
        # A forked process has none of the threads.
        alive = [job for job in list(_JOBS) if job._thread is not None and job._thread.is_alive()]
        if not alive:
            return
        for job in alive:
            job._next = None
            job._cancel.set()
            job.wait(0.05)

"""The logs of file sinks and sources under the root, for the view of streams."""

from typing import Any

from traitlets import Any as AnyTrait
from traitlets import Int, Unicode, observe

from compaction_kit.sinklog import SinkLog, find_sink_logs, sink_log
from compaction_kit.sinklog.policy import Kind
from compaction_kit.widgets.job import Job, Watched, sentence_of
from compaction_kit.widgets.state import WorkbenchState


class StreamsState(Watched):
    """The log that is looked at; `name`, `ahead` and `retention` are set by anybody."""

    name = Unicode("", help="The log to read, as sink_log() takes it; empty for none")
    ahead = Int(100, min=1, help="Batches to look ahead")
    retention = Unicode("", help='The sink\'s option of that name, such as "7 days"; empty for none')

    logs = AnyTrait(None, help="Those found, as a list of names; None before a look")
    log = AnyTrait(None, help="The SinkLog, or None")
    dropped = AnyTrait(None, help="The RetentionPlan for the retention, or None")
    error = Unicode("", help="Why there is no log, or no retention, in one sentence")

    def __init__(self, bench: WorkbenchState):
        super().__init__()
        self.bench = bench
        self.reading = Job()
        bench.observe(self._forget, ["root", "refreshed"])

    def _forget(self, change: Any) -> None:
        self.reading.cancel()
        self.logs = None
        if change.name == "root":
            self.name = ""

    def look_around(self) -> None:
        """Find the logs, in the background, unless that has been done."""
        if self.logs is None:
            self.reading.start_next(self._find)

    def _find(self, job: Job) -> None:
        if self.logs is not None:
            return
        root = self.bench.root
        found = find_sink_logs(root)
        if root == self.bench.root:
            self.logs = found
            if self.name in found:
                self._read()
            else:
                self.name = next(iter(found), "")

    @observe("name")
    def _open(self, _: object = None) -> None:
        self.log, self.retention = None, ""
        self._read()

    def _read(self) -> None:
        try:
            self.log, self.error = sink_log(self.name) if self.name else None, ""
        except Exception as error:
            self.log, self.error = None, sentence_of(error)
        self._plan()

    @observe("retention")
    def _plan(self, _: object = None) -> None:
        log: SinkLog | None = self.log
        if log is None:
            self.dropped = None
            return
        try:
            self.dropped, self.error = log.plan_retention(self.retention) if self.retention else None, ""
        except Exception as error:
            self.dropped, self.error = None, sentence_of(error)

    @property
    def is_sink(self) -> bool:
        """Whether the log is a sink's: only those can have a retention."""
        log: Any = self.log
        return log is not None and log.kind == Kind.SINK

"""The parts of the workbench: each shows some of the state and sets its inputs, no more."""

from compaction_kit.widgets.views.files import FilesView
from compaction_kit.widgets.views.history import HistoryView
from compaction_kit.widgets.views.picker import TablePicker
from compaction_kit.widgets.views.plan import PlanView
from compaction_kit.widgets.views.run import RunView
from compaction_kit.widgets.views.streams import StreamsView
from compaction_kit.widgets.views.survey import SurveyView
from compaction_kit.widgets.views.vacuum import VacuumView

__all__ = [
    "FilesView",
    "HistoryView",
    "PlanView",
    "RunView",
    "StreamsView",
    "SurveyView",
    "TablePicker",
    "VacuumView",
]

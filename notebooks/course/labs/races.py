"""Lesson 05's lab: two writers at once, played live."""

from pathlib import Path

import pyarrow as pa
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from compaction_kit.widgets import parts
from compaction_kit.widgets.job import Job
from course import figures, races
from course.lab import Choice, Finding, Lab
from course.writers import SCENARIOS, Scenario


class RacesLab(Lab):
    """A story of two writers to choose, and a button that plays it, in the background.

    Attributes:
        stories: The stories that have been played, by name.
        playing: The story under way.
    """

    def __init__(self, folder: str | Path, story: str, spark: SparkSession | None) -> None:
        """See `race`."""
        self._folder, self._spark = folder, spark
        self.stories: dict[str, races.Story] = {}
        self.playing = Job()
        self.button = parts.button("Play", "ck-play", self.play, style="primary")
        self.error = parts.Text("error", "race-error")
        stories = {name: name for name in SCENARIOS}
        super().__init__(self._find, self.button, self.error, story=Choice("Story", stories, story))
        self.watch(self.playing, ["status"])

    def play(self) -> None:
        """Play the story that is chosen, unless one is under way."""
        name = self.values["story"]
        self.playing.start(lambda job: self._play(name))

    def _play(self, name: str) -> None:
        self.stories[name] = races.play(self._folder, name, self._spark)

    def _render(self) -> None:
        playing = self.playing
        self.button.disabled = playing.running
        self.error.show(playing.message if playing.status == "failed" else "", playing.details)
        super()._render()

    def _find(self, story: str) -> Finding:
        scenario, played = SCENARIOS[story], self.stories.get(story)
        if played is None:
            figure = _before(story, scenario)
            outcome = "Playing …" if self.playing.running else "Who wins? Make a guess, then play it."
        else:
            figure = played.plot()
            winners = " and ".join(played.winners)
            outcome = f"{winners} committed. {played.why} Rows: {played.facts()['rows']}."
        lines = [
            scenario.about,
            f"{scenario.first.name}, held before its commit: {scenario.first.statement}",
            f"{scenario.second.name}, in between: {scenario.second.statement}",
            outcome,
        ]
        code = (
            "from course import races\n\n"
            f"story = races.play({str(self._folder)!r}, {story!r})\n"
            "print(story.why)\n"
            "story.plot()"
        )
        return Finding("\n".join(lines), figure, code)


def _before(name: str, scenario: Scenario) -> Figure:
    """Draw what is known before a story is played: who begins, and who commits first."""
    first, second = scenario.first.name, scenario.second.name
    attempts = [
        {"writer": writer, "read_version": 0, "version": 1, "outcome": outcome}
        for writer, outcome in ((second, "committed"), (first, "unknown"))
    ]
    tries = pa.Table.from_pylist(attempts, races.ATTEMPTS)
    return figures.concurrency(tries, (first, second), f"{name}: who wins?")


def race(
    folder: str | Path, story: str = "append with append", spark: SparkSession | None = None
) -> RacesLab:
    """Choose a story of two writers and play it: who commits, who is refused, and by which rule.

    Args:
        folder: The folder in which each story makes its table.
        story: The name of a story, from `races.scenarios()`; nothing is played before the click.
        spark: The session; None for that of `get_spark()`.

    Raises:
        InvalidArgumentError: There is no such story.
    """
    return RacesLab(folder, story, spark)

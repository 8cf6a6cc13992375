"""Lesson 05's lab: two writers at once, played live."""

from pathlib import Path

import pyarrow as pa
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from compaction_kit.widgets import parts
from compaction_kit.widgets.job import Job
from course import figures, races
from course.lab import Choice, Finding, Lab
from course.writers import SCENARIOS


class RacesLab(Lab):
    """A story of two writers to choose, and a button that plays it, in the background."""

    def __init__(self, folder: str | Path, story: str, spark: SparkSession | None) -> None:
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

        def work(_: Job) -> None:
            self.stories[name] = races.play(self._folder, name, self._spark)

        self.playing.start(work)

    def _render(self) -> None:
        job = self.playing
        self.button.disabled = job.running
        self.error.show(job.message if job.status == "failed" else "", job.details)
        super()._render()

    def _find(self, story: str) -> Finding:
        scenario, played = SCENARIOS[story], self.stories.get(story)
        first, second = scenario.first, scenario.second
        if played is None:
            # Who begins, and who commits first, is known before a story is played.
            attempts = [
                {"writer": writer.name, "read_version": 0, "version": 1, "outcome": outcome}
                for writer, outcome in ((second, "committed"), (first, "unknown"))
            ]
            tries = pa.Table.from_pylist(attempts, races.ATTEMPTS)
            figure: Figure = figures.concurrency(tries, (first.name, second.name), f"{story}: who wins?")
            outcome = "Playing …" if self.playing.running else "Who wins? Make a guess, then play it."
        else:
            figure = played.plot()
            winners = " and the ".join(played.winners)
            outcome = f"The {winners} committed. {played.why} Rows: {played.rows}."
        lines = [
            scenario.about,
            f"{first.name}, held before its commit: {first.statement}",
            f"{second.name}, in between: {second.statement}",
            outcome,
        ]
        code = f"""\
from course import races

story = races.play({str(self._folder)!r}, {story!r})
print(story.why)
story.plot()"""
        return Finding("\n".join(lines), figure, code)


def race(
    folder: str | Path, story: str = "append with append", spark: SparkSession | None = None
) -> RacesLab:
    """Choose a story of two writers and play it: who commits, who is refused, and by which rule.

    Args:
        folder: The folder in which each story makes its table.
        story: The name of a story, from `writers.SCENARIOS`; nothing is played before the click.
        spark: The session; None for that of `get_spark()`.
    """
    return RacesLab(folder, story, spark)

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


def race(folder: str | Path, story: str = "append with append", spark: SparkSession | None = None) -> Lab:
    """Choose a story of two writers and play it: who commits, who is refused, and which rule refuses it.

    Args:
        folder: The folder in which each story makes its table.
        story: The name of a story, from `writers.SCENARIOS`; nothing is played before the click.
        spark: The session; None for the session of `get_spark()`.
    """
    stories: dict[str, races.Story] = {}
    playing, error = Job(), parts.Text("error", "race-error")

    def play() -> None:
        name = lab.values["story"]
        playing.start(lambda _: stories.update({name: races.play(folder, name, spark)}))

    def find(story: str) -> Finding:
        button.disabled = playing.running
        error.show(playing.error, playing.details)
        scenario, played = SCENARIOS[story], stories.get(story)
        first, second = scenario.first, scenario.second
        if played is not None:
            figure = played.plot()
            winners = " and the ".join(played.winners)
            outcome = f"The {winners} committed. {played.why} Rows: {played.rows}."
        else:
            figure = _before(scenario)
            outcome = "Playing …" if playing.running else "Who wins? Make a guess, then play it."
        lines = [
            scenario.about,
            f"{first.name}, paused before its commit: {first.statement}",
            f"{second.name}, in between: {second.statement}",
            outcome,
        ]
        code = f"""\
from course import races

story = races.play({str(folder)!r}, {story!r})
print(story.why)
story.plot()"""
        return Finding("\n".join(lines), figure, code)

    button = parts.button("Play", "ck-play", play, style="primary")
    lab = Lab(find, button, error, story=Choice("Story", {name: name for name in SCENARIOS}, story))
    lab.watch(playing, ["status"])
    return lab


def _before(scenario: Scenario) -> Figure:
    """Draw who begins, and who commits first, which is known before a story is played."""
    names = (scenario.first.name, scenario.second.name)
    attempts = pa.table(
        {"writer": names, "read_version": [0, 0], "version": [1, 1], "outcome": ["unknown", "committed"]}
    )
    return figures.concurrency(attempts, names, f"{scenario.name}: who wins?")

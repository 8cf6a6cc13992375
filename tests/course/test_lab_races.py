"""Lesson 05's lab: a story is played on a click, and tells who won."""

from pathlib import Path

import pytest
from course import labs
from course.lab import run
from course.labs.races import RacesLab
from course.writers import SCENARIOS
from pyspark.sql import SparkSession

from compaction_kit.errors import InvalidArgumentError

SECONDS = 120
# It takes the least time of those in which one is refused.
STORY = "append with ADD COLUMN"


def told(lab: RacesLab) -> str:
    assert lab.finding is not None, lab.failure.value
    return f"{lab.finding.figure.get_label()}. {lab.finding.sentence}"


@pytest.mark.spark
def test_a_story_is_played_by_a_click_and_stays_played(spark: SparkSession, tmp_path: Path) -> None:
    lab = labs.race(tmp_path / "stories", STORY, spark)
    assert told(lab).startswith(f"{STORY}: who wins?")
    assert told(lab).endswith("Who wins? Make a guess, then play it.")
    size = lab.finding and lab.finding.figure.get_size_inches().tolist()
    lab.button.click()
    assert lab.button.disabled
    lab.playing.wait(SECONDS)
    assert not lab.button.disabled
    assert told(lab).startswith(f"{STORY}: the ADD COLUMN won, the append was refused")
    assert "ADD COLUMN committed. The ADD COLUMN changed the table's columns" in told(lab)
    assert "40 → 40, 0 lost, 0 doubled" in told(lab)
    assert lab.finding
    assert lab.finding.figure.get_size_inches().tolist() == size
    lab.move(story="two compactions")
    assert "who wins?" in told(lab)
    lab.move(story=STORY)
    assert "was refused" in told(lab)
    again = run(lab.as_code())
    assert str(again.get_label()) == str(lab.finding.figure.get_label())


def test_every_story_can_be_chosen_and_one_that_cant_be_played_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    lab = labs.race(tmp_path)
    lab.button.click()
    lab.playing.wait(SECONDS)
    assert f"{tmp_path} is inside the Delta table" in lab.error.value
    assert not lab.button.disabled
    for story in SCENARIOS:
        lab.move(story=story)
        assert told(lab).startswith(f"{story}: who wins?")
    with pytest.raises(InvalidArgumentError, match="Story can't be"):
        labs.race(tmp_path, "nobody")

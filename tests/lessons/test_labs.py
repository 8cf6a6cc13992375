"""The labs of the lessons: what moves, what is said and drawn then, and that it is true."""

import pytest

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.lessons import labs
from compaction_kit.lessons.lab import Lab


def told(lab: Lab) -> str:
    """What the lab's sentence says, and its figure to people who can't see it."""
    assert lab.finding is not None, lab.failure.value
    return f"{lab.finding.sentence} {lab.finding.figure.get_label()}"


def height(lab: Lab) -> float:
    """How high the figure is, which is not to change while a control moves."""
    assert lab.figure is not None
    return lab.figure.get_figheight()


def test_a_feed_writes_files_and_readers_wait_for_them() -> None:
    lab = labs.feed()
    assert "3 files a day" in told(lab)
    assert "After 1 year: 1,095 files, 6.8 s until open; compacted: 3 files, 19 ms" in told(lab)
    lab.move(interval=10, partitions=24, seconds_to_open=0.1, at_once=1)
    assert "207,360 files a day" in told(lab)
    assert "after 1 day: 207,360 files, 5 h 46 min" in told(lab)
    # The figure neither grows nor shrinks when a table has no file yet.
    assert "after 1 hour: 0 files" in told(labs.feed())
    assert height(labs.feed()) == height(lab)


def test_what_a_file_was_measured_to_take_is_a_step_of_the_slider() -> None:
    lab = labs.feed(seconds_to_open=0.0007)
    assert lab.controls["seconds_to_open"].text == "0.7 ms"
    lab.move(seconds_to_open=0.001)
    with pytest.raises(InvalidArgumentError, match="A commit every can't be 11: choose one of 10, 60"):
        labs.feed(interval=11)

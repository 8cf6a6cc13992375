import time

import pytest

from compaction_kit.execute import Progress
from compaction_kit.execute.work import Countdown, ProgressBar


@pytest.mark.parametrize(
    ("fraction", "seconds", "left"),
    [(0.0, 1.0, None), (0.01, 9.0, None), (0.25, 10.0, 30.0), (1.0, 5.0, 0.0)],
)
def test_the_time_left_goes_by_the_pace_so_far(fraction: float, seconds: float, left: float | None) -> None:
    assert Progress("step", fraction, 0, 4, seconds).seconds_left == left


def test_the_seconds_left_that_are_shown_never_rise() -> None:
    countdown = Countdown()
    # Work is counted at 10, 20 and 60 s; between these, the pace so far seems to slow down.
    shares = {10: 0.5, 12: 0.5, 19: 0.5, 20: 0.7, 24: 0.7, 60: 0.95, 61: 1.0}
    shown = {at: countdown(Progress("Rewriting", share, 0, 4, at)) for at, share in shares.items()}
    about = {10: "10", 12: "10", 20: "9", 24: "9", 60: "3"}
    assert shown == {at: f"about {about[at]} s left" if at in about else "" for at in shares}


def test_bins_and_bytes_are_told_where_there_are_any() -> None:
    assert (
        str(Progress("Rewriting", 0.5, 3, 7, 1.0, 2 << 20, 5 << 20))
        == "Rewriting, 3 of 7 bins, 2 MiB of 5 MiB"
    )
    assert (
        str(Progress("Comparing the content", 0.5, 7, 7, 1.0, 5 << 20, 5 << 20, 1 << 20))
        == "Comparing the content, 1 MiB of 5 MiB"
    )
    assert str(Progress("7 of 9 tables", 0.5, 0, 0, 1.0)) == "7 of 9 tables"


def test_the_bar_shows_each_step_though_nothing_is_added(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar()
    for step, fraction in (("Reading", 0.0), ("Rewriting", 0.8), ("Comparing", 0.8)):
        time.sleep(0.15)  # as often as a run reports, or a bit less
        bar(Progress(step, fraction, 1, 4, 12.0))
    bar.close()
    shown = capsys.readouterr().err
    assert "Rewriting, 1 of 4 bins |" in shown
    assert "Comparing, 1 of 4 bins |" in shown
    assert " 80 %" in shown
    assert "about 3 s left" in shown
    assert shown.endswith("\r")

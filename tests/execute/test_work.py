import time

import pytest

from compaction_kit.execute import Progress
from compaction_kit.execute.work import Countdown, ProgressBar


def test_the_seconds_left_that_are_shown_never_rise() -> None:
    countdown = Countdown()
    # Work is counted at 10, 20 and 60 s; between these, the pace so far seems to slow down.
    shares = {0: 0.0, 9: 0.01, 10: 0.5, 12: 0.5, 19: 0.5, 20: 0.7, 24: 0.7, 60: 0.95, 61: 1.0}
    shown = {at: countdown(Progress("Rewriting", share, 0, 4, at)) for at, share in shares.items()}
    about = {10: "10", 12: "10", 20: "9", 24: "9", 60: "3"}
    assert shown == {at: f"about {about[at]} s left" if at in about else "" for at in shares}


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

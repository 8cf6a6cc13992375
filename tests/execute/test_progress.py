import time

import pytest

from compaction_kit.execute import Progress
from compaction_kit.execute.progress import ProgressBar, Reporter


@pytest.mark.parametrize(
    ("fraction", "seconds", "left"),
    [(0.0, 1.0, None), (0.01, 9.0, None), (0.25, 10.0, 30.0), (1.0, 5.0, 0.0)],
)
def test_the_time_left_goes_by_the_pace_so_far(fraction: float, seconds: float, left: float | None) -> None:
    assert Progress("step", fraction, 0, 4, seconds).seconds_left == left


def test_a_reporter_adds_bins_and_a_clock_that_runs() -> None:
    seen: list[Progress] = []
    report = Reporter(seen.append, 7)
    report("one", 0.1)
    report("two", 0.5, 3)
    assert [(p.step, p.fraction, p.bins_done, p.num_bins) for p in seen] == [
        ("one", 0.1, 0, 7),
        ("two", 0.5, 3, 7),
    ]
    assert 0 <= seen[0].seconds <= seen[1].seconds <= report.seconds


def test_the_bar_shows_each_step_though_nothing_is_added(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar()
    for step, fraction in (("Reading", 0.0), ("Rewriting bin 2 of 4", 0.85), ("Comparing", 0.85)):
        time.sleep(0.15)  # as often as a run reports, or a bit less
        bar(Progress(step, fraction, 1, 4, 1.0))
    bar.close()
    shown = capsys.readouterr().err
    assert "Rewriting bin 2 of 4 |" in shown
    assert "Comparing |" in shown
    assert " 85 %" in shown
    assert shown.endswith("\r")

import pytest

from compaction_kit.durations import format_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0042, "4.2 ms"),
        (0.042, "42 ms"),
        (0.0996, "0.10 s"),
        (0.42, "0.42 s"),
        (0.999, "1.0 s"),
        (1.34, "1.3 s"),
        (9.96, "10 s"),
        (119.4, "119 s"),
        (125, "2 min 5 s"),
        (3780, "63 min 0 s"),
        (7200, "2 h 0 min"),
    ],
    ids=str,
)
def test_seconds_are_written_for_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text

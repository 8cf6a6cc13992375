from datetime import UTC, datetime
from pathlib import Path

import pytest

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.times import session_zone
from tests import handmade


def at(day: int) -> datetime:
    return datetime(2024, 1, day, tzinfo=UTC)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Committed on the first three days of 2024, as the commits themselves say."""
    properties = {"delta.enableInCommitTimestamps": "true"}
    infos = [
        {"commitInfo": {"operation": "WRITE", "inCommitTimestamp": int(at(day).timestamp() * 1000)}}
        for day in (1, 2, 3)
    ]
    metadata = handmade.metadata(configuration=properties)
    head = [handmade.protocol(), metadata, handmade.add("a")]
    handmade.write_log(tmp_path, head, [handmade.add("b")], [handmade.add("c")])
    for version, actions in enumerate((head, [handmade.add("b")], [handmade.add("c")])):
        handmade.write_commit(tmp_path, version, [infos[version], *actions])
    return tmp_path


def test_a_time_stands_for_the_last_version_committed_by_then(table: Path) -> None:
    picked = open_table(table).at(timestamp="2024-01-02 12:00:00+00:00")
    assert (picked.version, picked.timestamp, picked.superseded_at) == (1, at(2), at(3))
    assert picked.in_commit
    shown = [time.astimezone(session_zone()).isoformat(" ", "milliseconds") for time in (at(2), at(3))]
    assert repr(picked) == (
        f"version 1: committed {shown[0]} by its in-commit timestamp, superseded {shown[1]}"
    )


def test_a_version_stands_for_itself_and_nothing_for_the_latest(table: Path) -> None:
    assert open_table(table).at(0).timestamp == at(1)
    latest = open_table(table).at()
    assert (latest.version, latest.superseded_at) == (2, None)


def test_without_in_commit_timestamps_the_files_time_counts(shaped: Path) -> None:
    picked = open_table(shaped).at(3)
    assert not picked.in_commit
    assert picked.timestamp is not None
    assert "by the time of its file" in repr(picked)


@pytest.mark.parametrize(
    ("timestamp", "words"),
    [("2023-12-31", "before the earliest"), ("2024-01-04", "after the latest"), ("noon", "is not a time")],
)
def test_a_time_out_of_range_is_refused_in_one_sentence(table: Path, timestamp: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        open_table(table).at(timestamp=timestamp)
    assert "\n" not in str(caught.value)


def test_a_version_and_a_time_are_one_too_many(table: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="choose one of the two"):
        open_table(table).at(1, "2024-01-02")

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_kit.errors import CorruptLogError, InvalidArgumentError
from compaction_kit.log.listing import LogFile, complete_checkpoints, find_segment, log_file


def commits(*versions: int) -> list[LogFile]:
    return [log_file(f"{version:020d}.json", 10) for version in versions]


def checkpoint(version: int) -> LogFile:
    return log_file(f"{version:020d}.checkpoint.parquet", 100)


def parts(version: int, have: set[int], num_parts: int) -> list[LogFile]:
    return [log_file(f"{version:020d}.checkpoint.{part:010d}.{num_parts:010d}.parquet", 50) for part in have]


def test_the_newest_checkpoint_at_or_before_the_version_is_the_start() -> None:
    files = [*commits(0, 1, 2, 3, 4, 5), checkpoint(1), checkpoint(3)]
    assert [file.version for file in find_segment(files).commits] == [4, 5]
    assert find_segment(files, 3).commits == ()
    assert find_segment(files, 2).checkpoint == (checkpoint(1),)
    assert [file.version for file in find_segment(files, 2).commits] == [2]


def test_a_checkpoint_that_lacks_a_part_does_not_count() -> None:
    files = [*commits(0, 1, 2, 3), checkpoint(1), *parts(3, {1, 3}, 3)]
    assert find_segment(files).checkpoint == (checkpoint(1),)
    assert len(find_segment([*files, *parts(3, {2}, 3)]).checkpoint) == 3


def test_parts_of_two_attempts_are_not_mixed() -> None:
    files = [*parts(3, {1}, 2), *parts(3, {2, 3}, 3)]
    assert complete_checkpoints(files) == {}


def test_one_file_is_preferred_to_several() -> None:
    files = [*parts(3, {1, 2}, 2), checkpoint(3)]
    assert complete_checkpoints(files) == {3: (checkpoint(3),)}


def test_a_log_cleaned_up_to_a_checkpoint_is_read_from_there() -> None:
    files = [checkpoint(5), *commits(4, 5, 6)]
    assert [file.version for file in find_segment(files).commits] == [6]
    with pytest.raises(
        InvalidArgumentError, match=r"version=4 .* cleaned up to version 5; choose 5 or later"
    ):
        find_segment(files, 4)


@pytest.mark.parametrize("version", [-1, 3, 10**9])
def test_a_version_out_of_range_names_the_latest(version: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"version={version} does not exist: the latest is 2"):
        find_segment(commits(0, 1, 2), version)


def test_a_missing_commit_is_named() -> None:
    with pytest.raises(CorruptLogError, match="lacks the commit of version 1 "):
        find_segment(commits(0, 2, 3))
    assert find_segment(commits(0, 2, 3), 0).version == 0


def test_a_log_without_commits_and_checkpoints_is_corrupt() -> None:
    with pytest.raises(CorruptLogError, match="no commit and no checkpoint"):
        find_segment([log_file("_last_checkpoint"), log_file("00000000000000000000.crc")])


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)), st.none() | st.integers(0, 9))
def test_a_segment_reaches_its_version_without_a_gap_or_there_is_none(
    commit_versions: set[int], checkpoint_versions: set[int], version: int | None
) -> None:
    files = [*commits(*commit_versions), *map(checkpoint, checkpoint_versions)]
    reachable = {
        target
        for target in range(10)
        for start in {-1, *checkpoint_versions}
        if start <= target and set(range(start + 1, target + 1)) <= commit_versions
    }
    target = max(commit_versions | checkpoint_versions, default=None) if version is None else version
    if target not in reachable:
        with pytest.raises((CorruptLogError, InvalidArgumentError)):
            find_segment(files, version)
        return
    segment = find_segment(files, version)
    assert segment.version == target
    start = segment.checkpoint[0].version if segment.checkpoint else -1
    assert start == max((v for v in checkpoint_versions if v <= target), default=-1)
    assert [file.version for file in segment.commits] == list(range((start or 0) + 1, target + 1))

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_kit.errors import CorruptLogError, InvalidArgumentError
from compaction_kit.log.listing import LogFile, complete_checkpoints, find_segment, list_log, log_file
from compaction_kit.storage import open_store
from tests.refusals import refused


def commits(*versions: int) -> list[LogFile]:
    return [log_file(f"{version:020d}.json", 10) for version in versions]


def checkpoint(version: int) -> LogFile:
    return log_file(f"{version:020d}.checkpoint.parquet", 100)


def parts(version: int, have: set[int], num_parts: int) -> list[LogFile]:
    return [log_file(f"{version:020d}.checkpoint.{part:010d}.{num_parts:010d}.parquet", 50) for part in have]


def test_a_checkpoint_counts_if_all_its_parts_are_of_one_attempt_and_one_file_is_preferred() -> None:
    files = [*commits(0, 1, 2, 3), checkpoint(1), *parts(3, {1, 3}, 3)]
    assert find_segment(files).checkpoint == (checkpoint(1),)
    assert len(find_segment([*files, *parts(3, {2}, 3)]).checkpoint) == 3
    assert complete_checkpoints([*parts(3, {1}, 2), *parts(3, {2, 3}, 3)]) == {}
    assert complete_checkpoints([*parts(3, {1, 2}, 2), checkpoint(3)]) == {3: (checkpoint(3),)}


def test_a_version_that_can_t_be_read_is_refused_with_what_can() -> None:
    for files, version, kind, words in (
        (commits(0, 1, 2), 3, InvalidArgumentError, "version=3 does not exist: the latest is 2"),
        ([checkpoint(5), *commits(4, 5)], 4, InvalidArgumentError, "cleaned up to version 5; choose 5 or"),
        (commits(0, 2, 3), None, CorruptLogError, "lacks the commit of version 1 "),
        ([log_file("_last_checkpoint"), log_file(f"{0:020}.crc")], None, CorruptLogError, "no commit and no"),
    ):
        refused(partial(find_segment, files, version), kind, words)


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


def test_the_listing_is_by_name_with_sidecars_and_without_hadoops_checksums(tmp_path: Path) -> None:
    folder = tmp_path / "_delta_log"
    (folder / "_sidecars").mkdir(parents=True)
    (folder / "_staged_commits").mkdir()
    names = [f"{0:020d}.json", f"{1:020d}.json", "_sidecars/a.parquet"]
    for name in [*names[::-1], f".{names[0]}.crc", "_sidecars/.a.parquet.crc"]:
        (folder / name).write_text("x")
    assert [file.name for file in list_log(open_store(str(tmp_path)))] == names

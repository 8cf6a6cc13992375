from pathlib import Path

import pytest

from compaction_kit.errors import TableNotFoundError
from compaction_kit.log.listing import Kind, list_log, log_file
from compaction_kit.storage import open_store

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


@pytest.mark.parametrize(
    ("name", "kind", "version"),
    [
        ("00000000000000000012.json", Kind.COMMIT, 12),
        ("00000000000000000012.crc", Kind.CHECKSUM, 12),
        ("00000000000000000012.checkpoint.parquet", Kind.CHECKPOINT, 12),
        ("00000000000000000012.checkpoint.0000000002.0000000003.parquet", Kind.CHECKPOINT_PART, 12),
        (f"00000000000000000012.checkpoint.{UUID}.json", Kind.V2_CHECKPOINT, 12),
        (f"00000000000000000012.checkpoint.{UUID}.parquet", Kind.V2_CHECKPOINT, 12),
        ("00000000000000000012.00000000000000000034.compacted.json", Kind.COMPACTED, 12),
        ("_last_checkpoint", Kind.LAST_CHECKPOINT, None),
        ("_sidecars/x.parquet", Kind.SIDECAR, None),
        (f"00000000000000000012.{UUID}.json", Kind.OTHER, None),
        ("12.json", Kind.OTHER, None),
        ("00000000000000000012.json.tmp", Kind.OTHER, None),
        ("000000000000000000012.json", Kind.OTHER, None),
        ("_last_vacuum_info", Kind.OTHER, None),
    ],
)
def test_a_name_says_what_a_log_file_is(name: str, kind: Kind, version: int | None) -> None:
    file = log_file(name, 7, 8)
    assert (file.kind, file.version) == (kind, version)
    assert (file.name, file.size_bytes, file.modification_time) == (name, 7, 8)


def test_the_listing_is_by_name_with_sidecars_and_without_hadoops_checksums(tmp_path: Path) -> None:
    folder = tmp_path / "_delta_log"
    (folder / "_sidecars").mkdir(parents=True)
    (folder / "_staged_commits").mkdir()
    names = ["00000000000000000001.json", "00000000000000000000.json", ".00000000000000000000.json.crc"]
    for name in [*names, "_sidecars/a.parquet", "_sidecars/.a.parquet.crc"]:
        (folder / name).write_text("x")
    assert [file.name for file in list_log(open_store(str(tmp_path)))] == [
        "00000000000000000000.json",
        "00000000000000000001.json",
        "_sidecars/a.parquet",
    ]


def test_a_log_that_is_gone_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError, match="_delta_log folder does not exist") as caught:
        list_log(open_store(str(tmp_path / "gone")))
    assert str(tmp_path / "gone") in str(caught.value)

from pathlib import Path

from compaction_kit import open_table
from tests import handmade


def test_bytes_are_live_tombstoned_or_gone_and_orphans_are_apart(tmp_path: Path) -> None:
    table = handmade.write_log(
        tmp_path,
        [handmade.add("a", 1), handmade.add("b", 10)],
        [handmade.remove("a"), handmade.remove("b"), handmade.add("c", 100)],
        # It comes back under a vector, and is one file all the time.
        [handmade.add("b", 10, vector=handmade.vector("0rJua"))],
    )
    for name in ("b", "c"):
        (table / name).write_text("x")
    (table / "orphan").write_text("12345")
    (table / "_hidden").write_text("1")
    storage = open_table(table).storage()
    assert storage.orphaned_bytes == 5
    assert storage.versions.to_pydict() == {
        "version": [0, 1, 2],
        "live_bytes": [11, 100, 110],
        "tombstoned_bytes": [0, 10, 0],
        "gone_bytes": [0, 1, 1],
    }

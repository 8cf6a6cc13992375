"""Lesson 06's lab: which versions a vacuum would cost."""

from pathlib import Path

import deltalake
from course import labs
from course.lab import run

from compaction_kit import open_table
from compaction_kit.datasets import shaped_table
from tests import folders


def test_time_retention_and_a_version_to_keep_decide_what_is_lost(tmp_path: Path) -> None:
    path = Path(shaped_table(tmp_path / "table", partitions=0, files=4, rows=100, commits=4))
    # Of the files of versions 1 and 2; each is in all versions up to the fourth.
    deltalake.DeltaTable(path).delete("id < 150")
    table, before = open_table(path), folders.listing(path)
    lab = labs.vacuum(table, days=0)

    def lost() -> list[int]:
        """What the lab's lines plan, of which figure and sentence tell as well."""
        assert lab.finding is not None, lab.failure.value
        vacuum = run(lab.as_code().removesuffix(".plot()"), {"table": table})
        count = len(vacuum.versions_lost)
        assert str(lab.finding.figure.get_label()).startswith(
            f"VACUUM would cost {count} of 6 readable versions" if count else "VACUUM would delete nothing"
        )
        assert ("would be lost" in lab.finding.sentence) == bool(count)
        return list(vacuum.versions_lost)

    assert lost() == []
    lab.move(days=8)
    assert lost() == [1, 2, 3, 4]
    lab.move(keep=(1,))
    assert lost() == [2, 3, 4]
    lab.move(keep=(), retention=9)
    assert lost() == []
    lab.move(retention=6)
    assert "6 days&quot; is shorter than the 168 hours" in lab.failure.value
    assert lab.figure is None
    lab.move(retention=7)
    assert lost() == [1, 2, 3, 4]
    assert folders.listing(path) == before

"""What hides the differences between releases; `make compat` runs the rest of the tests on the older ones."""

from pathlib import Path

import pyspark
import pytest

from compaction_kit.compat import check_pair
from compaction_kit.errors import SessionError


def test_delta_40_is_for_spark_40(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "delta_spark-4.0.1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: delta-spark\nVersion: 4.0.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(pyspark, "__version__", "4.2.0")
    with pytest.raises(SessionError, match=r"Delta 4\.0\.1 runs on Spark 4\.0 only, and pyspark 4\.2\.0"):
        check_pair()
    monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    check_pair()

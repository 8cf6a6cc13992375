import re
import time
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError
from tests import handmade
from tests.ageing import age
from tests.chance import examples
from tests.conftest import CopyOf
from tests.handmade import add, remove, unchanged, write_log


@pytest.fixture(scope="module")
def claims(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Overwritten with dataChange=false but in version 2: 100 of 1,000 rows dropped (1), put back (2), a row
    changed (3), the same in one file (4).
    """
    table = tmp_path_factory.mktemp("claims") / "table"
    commits: list[list[handmade.Action]] = []

    def write(start: int, end: int, num_files: int, data_change: bool) -> None:
        now, version, step = int(time.time() * 1_000), len(commits), (end - start) // num_files
        gone = [remove(one["add"]["path"], now) for one in (commits or [[]])[-1] if "add" in one]
        new = [
            handmade.write_data(table, f"{version}-{first}", pa.table({"id": range(first, first + step)}))
            for first in range(start, end, step)
        ]
        commits.append([*gone, *new] if data_change else [unchanged(one) for one in (*gone, *new)])

    write(0, 1_000, 2, True)
    write(0, 900, 1, False)
    write(0, 1_000, 2, True)
    write(1, 1_001, 2, False)
    write(1, 1_001, 1, False)
    return write_log(table, *commits)


@pytest.mark.spark
def test_a_claim_to_change_no_data_proves_nothing_and_reading_the_rows_does(
    spark: SparkSession, copy_of: CopyOf, claims: Path
) -> None:
    table = open_table(copy_of(claims), spark)
    assert table.versions()["same_content_by"].to_pylist() == [None] * 5
    versions = table.versions(verify=True)
    assert versions["same_content_as"].to_pylist() == [None, None, None, 4, 3]
    assert versions["same_content_by"].to_pylist() == [None, None, None, "proved", "proved"]
    unknown = "not known to be the same; verify=True compares the rows"
    for end, by_log, by_rows in (
        (1, "different: 100 rows fewer", "different: other fingerprints"),
        (2, unknown, "the same: proved"),
    ):
        for verify, words in ((False, by_log), (True, by_rows)):
            diff = table.diff(0, end, verify=verify)
            assert diff.facts()["content"] == words
            assert diff.same_content == words.startswith("the same")
    assert table.diff(1, 0).difference == "100 rows more"
    # A vacuum takes no such commit for a copy of what it deletes.
    age(table.path, 1)
    later = datetime.now(UTC) + timedelta(days=6, minutes=1)
    vacuum = table.plan_vacuum(at=later)
    assert (vacuum.versions_lost, vacuum.content_survives_as) == ([0, 1, 2, 3], {})
    assert "same content can still be read" not in vacuum.explain()
    # Versions whose files are gone are not compared.
    for path in table.diff(3, 4).paths("removed"):
        (table.path / path).unlink()
    assert table.versions(verify=True)["same_content_by"].to_pylist() == [None] * 5
    with pytest.raises(InvalidArgumentError, match="Versions 3 and 4 can't be compared"):
        table.diff(3, 4, verify=True)


@pytest.mark.spark
@pytest.mark.nightly
def test_versions_are_compared_with_their_own_columns_and_deletion_vectors(
    spark: SparkSession, copy_of: CopyOf, lived: Path
) -> None:
    copy = copy_of(lived)
    spark.sql(f"ALTER TABLE delta.`{copy}` ADD COLUMN note STRING")
    table = open_table(copy, spark)
    # 0 to 2 deleted rows by vectors, 3 compacted them away.
    for versions, words in (
        ((2, 3), "the same: proved"),
        ((1, 2), "different: other fingerprints"),
        ((4, 5), "different: other columns"),
    ):
        assert table.diff(*versions, verify=True).facts()["content"] == words
    assert table.diff(2, 3).same_content_by == "row counts agree"
    versions = table.versions().to_pylist()
    read = " UNION ALL ".join(f"SELECT {n} v, count(id) c FROM delta.`{copy}@v{n}`" for n in range(6))
    counts = [0, *(row.c for row in spark.sql(f"{read} ORDER BY v").collect())]
    assert [row["records_change"] for row in versions] == np.diff(counts).tolist()
    assert min(row["records_change"] for row in versions) < 0


INFOS: dict[str, handmade.Action] = {
    "OPTIMIZE": {"operation": "OPTIMIZE"},
    "REORG": {"operation": "REORG"},
    "compaction_kit": {"operation": "WRITE", "userMetadata": "compaction_kit rewrite, plan 0a1b2c3d"},
    "proved": {
        "operation": "OPTIMIZE",
        "userMetadata": "mine; compaction_kit arrow, plan 0a1b2c3d, proved 10 rows 1f -2e by DuckDB+Spark",
    },
    "WRITE": {"operation": "WRITE", "userMetadata": "mine"},
    "none": {},
}


@pytest.mark.parametrize(
    ("name", "before", "after", "grade"),
    [
        *((name, 10, 10, "row counts agree") for name in ("OPTIMIZE", "REORG", "compaction_kit")),
        *(("proved", 10, 10, "proved"), ("proved", 10, 9, None)),
        *((name, 10, 10, None) for name in ("WRITE", "none")),
        *(("OPTIMIZE", *counts, None) for counts in ((10, 9), (None, 10), (10, None))),
    ],
)
def test_a_commit_that_names_itself_a_rewrite_needs_row_counts_that_agree(
    tmp_path: Path, name: str, before: int | None, after: int | None, grade: str | None
) -> None:
    rewrite = map(unchanged, (remove("a"), add("b", records=after)))
    table = open_table(
        write_log(tmp_path, [add("a", records=before)], [{"commitInfo": INFOS[name]}, *rewrite])
    )
    assert table.diff(0, 1).same_content_by == grade
    assert table.versions()["same_content_by"].to_pylist() == [grade] * 2


@pytest.mark.spark
def test_a_proof_stays_with_the_commit(changed: Path) -> None:
    open_table(changed).plan_compaction().run(strategy="arrow")
    assert open_table(changed).versions()["same_content_by"].to_pylist()[4:] == ["proved"] * 2
    (info,) = handmade.actions_of(changed, 5, "commitInfo")
    assert re.search(r"arrow, plan \w+, proved 1050 rows \w+ \w+ by DuckDB$", info["userMetadata"])


# Commits: whether they say that they change data, their operation, the files live after them.
COMMITS = st.lists(
    st.tuples(st.booleans(), st.sampled_from(sorted(INFOS)), st.sets(st.sampled_from("abcdef"), min_size=1)),
    min_size=1,
    max_size=8,
)
RECORDS = {"a": 1, "b": 1, "c": 2, "d": 2, "e": 3, "f": None}


@pytest.mark.long
@given(commits=COMMITS)
@examples(8, divided_by=5)
def test_versions_with_the_same_content_have_the_same_files_or_as_many_rows_by_trusted_operations(
    tmp_path_factory: pytest.TempPathFactory, commits: list[tuple[bool, str, set[str]]]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    live: set[str] = set()
    log, states = [], []
    for changes, name, files in commits:
        actions = [remove(path) for path in sorted(live - files)]
        actions += [add(path, records=RECORDS[path]) for path in sorted(files - live)]
        log.append([{"commitInfo": INFOS[name]}, *(actions if changes else map(unchanged, actions))])
        states.append(frozenset(live := files))
    table = open_table(write_log(folder, *log))
    for one, other in product(range(len(log)), repeat=2):
        by = table.diff(one, other).same_content_by
        assert (by == "identical files") == (states[one] == states[other])
        if by and by != "identical files":
            assert total(states[one] - states[other]) == total(states[other] - states[one])
            # A proof of another number of rows is none.
            assert by == "row counts agree"
            assert any(not changes and name not in ("WRITE", "none") for changes, name, _ in commits)
    for row in table.versions().to_pylist():
        other = row["same_content_as"]
        same = None if other is None else table.diff(row["version"], other).same_content_by
        assert row["same_content_by"] == same


def total(paths: frozenset[str]) -> int:
    return sum(RECORDS[path] or 0 for path in paths)

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.table import Table
from tests import folders, handmade
from tests.ageing import age
from tests.chance import examples

CopyOf = Callable[[Path], Path]
CONTRADICTED = "claimed by its writer, contradicted by the row counts"


@pytest.fixture(scope="module")
def claims(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Overwritten again and again with dataChange=false: 100 of 1,000 rows dropped (1), put back (2: that
    changes data), a row changed (3), in one file and the same (4).
    """
    table = tmp_path_factory.mktemp("claims") / "table"
    commits: list[list[handmade.Action]] = []

    def write(start: int, end: int, num_files: int, data_change: bool) -> None:
        now, version, step = int(time.time() * 1_000), len(commits), (end - start) // num_files
        gone = [handmade.remove(one["add"]["path"], now) for one in (commits or [[]])[-1] if "add" in one]
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
    return handmade.write_log(table, *commits)


def columns(table: Table, verify: bool = False) -> list[tuple[int | None, str | None, str | None]]:
    versions = table.versions(verify)
    names = ("same_content_as", "same_content_by", "content_claim")
    return list(zip(*(versions[name].to_pylist() for name in names), strict=True))


@pytest.mark.spark
def test_a_writers_claim_is_no_proof_and_row_counts_or_a_fingerprint_may_refute_it(
    spark: SparkSession, claims: Path
) -> None:
    table = open_table(claims, spark)
    none, claimed = (None, None, None), (None, None, "claimed by its writer")
    assert columns(table) == [none, (None, None, CONTRADICTED), none, claimed, claimed]
    fingerprint = "equal fingerprints"
    assert columns(table, verify=True) == [
        none,
        (None, None, CONTRADICTED),
        none,
        (4, fingerprint, "claimed by its writer, refuted by the fingerprints"),
        (3, fingerprint, None),
    ]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("versions", "by_log", "by_rows"),
    [
        (
            (0, 1),
            "different: 100 rows fewer, though claimed by its writer to be the same",
            "different: other",
        ),
        ((1, 0), "different: 100 rows more, though claimed by its writer to be the same", "different: other"),
        ((0, 2), "not known to be the same; verify=True compares", "the same: equal fingerprints"),
        (
            (2, 3),
            "claimed by its writer to be the same; verify=True",
            "different: other fingerprints, though",
        ),
        ((3, 4), "claimed by its writer to be the same; verify=True", "the same: equal fingerprints"),
        ((2, 2), "the same: identical files", "the same: identical files"),
    ],
)
def test_a_diff_says_how_it_knows(
    spark: SparkSession, claims: Path, versions: tuple[int, int], by_log: str, by_rows: str
) -> None:
    table = open_table(claims, spark)
    for verify, words in ((False, by_log), (True, by_rows)):
        diff = table.diff(*versions, verify=verify)
        assert diff.facts()["content"].startswith(words)
        assert diff.same_content == words.startswith("the same")


@pytest.mark.spark
def test_no_vacuum_takes_a_claim_for_a_spare_copy(spark: SparkSession, copy_of: CopyOf, claims: Path) -> None:
    table = open_table(copy_of(claims), spark)
    age(table.path, 1)
    later = datetime.now(UTC) + timedelta(days=6, minutes=1)
    vacuum = table.plan_vacuum(at=later)
    assert vacuum.versions_lost == [0, 1, 2, 3]
    assert vacuum.content_survives_as == {}
    assert vacuum.content_claimed_as == {2: 4, 3: 4}
    assert "same content can still be read" not in vacuum.explain()
    assert "diff(2, 4, verify=True)" in vacuum.explain()
    verified = table.plan_vacuum(at=later, verify=True)
    assert verified.content_survives_as == {3: 4}
    assert "3 as 4 (equal fingerprints)" in verified.explain()


@pytest.mark.spark
def test_versions_whose_files_are_gone_are_not_compared(
    spark: SparkSession, copy_of: CopyOf, claims: Path
) -> None:
    table = open_table(copy_of(claims), spark)
    for path in table.diff(3, 4).paths("removed"):
        (table.path / path).unlink()
    assert columns(table, verify=True)[3:] == [(None, None, "claimed by its writer")] * 2
    with pytest.raises(InvalidArgumentError, match="Versions 3 and 4 can't be compared"):
        table.diff(3, 4, verify=True)


@pytest.mark.spark
def test_versions_are_compared_with_their_own_columns_and_deletion_vectors(
    spark: SparkSession, copy_of: CopyOf, lived: Path
) -> None:
    copy = copy_of(lived)
    spark.sql(f"ALTER TABLE delta.`{copy}` ADD COLUMN note STRING")
    table = open_table(copy, spark)
    # 0 to 2 deleted rows by vectors, 3 compacted them away.
    for versions, words in (
        ((2, 3), "the same: equal fingerprints"),
        ((1, 2), "different: other fingerprints"),
        ((4, 5), "different: other columns"),
    ):
        assert table.diff(*versions, verify=True).facts()["content"] == words
    assert table.diff(2, 3).same_content_by == "says OPTIMIZE, row counts agree"


def unchanged(action: handmade.Action) -> handmade.Action:
    return {name: fields | {"dataChange": False} for name, fields in action.items()}


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


@pytest.mark.parametrize("name", INFOS)
@pytest.mark.parametrize(("before", "after"), [(10, 10), (10, 9), (None, 10), (10, None)])
def test_a_commit_that_names_itself_a_rewrite_needs_row_counts_that_agree(
    tmp_path: Path, name: str, before: int | None, after: int | None
) -> None:
    handmade.write_log(
        tmp_path,
        [handmade.add("a", records=before)],
        [
            {"commitInfo": INFOS[name]},
            unchanged(handmade.remove("a")),
            unchanged(handmade.add("b", records=after)),
        ],
    )
    found = open_table(tmp_path).diff(0, 1)
    is_rewrite = name not in ("WRITE", "none")
    if (before, after) == (10, 10) and is_rewrite:
        assert found.same_content_by == (
            "proved by compaction_kit" if name == "proved" else f"says {name}, row counts agree"
        )
    else:
        assert found.same_content_by is None
        assert found.content_claim == (
            CONTRADICTED if (before, after) == (10, 9) else "claimed by its writer"
        )


@pytest.mark.spark
def test_a_proof_stays_with_the_commit(spark: SparkSession, changed: Path, tmp_path: Path) -> None:
    other = folders.copy(changed, tmp_path / "other")
    for folder, verify in ((changed, True), (other, False)):
        open_table(folder).plan_compaction().run(strategy="arrow", verify=verify)
    by = [open_table(folder).versions()["same_content_by"].to_pylist()[4:] for folder in (changed, other)]
    assert by == [["proved by compaction_kit"] * 2, ["says compaction_kit, row counts agree"] * 2]
    found = open_table(changed).verify(4, 5)
    assert (found.same_content, found.same_content_by) == (True, "equal fingerprints")
    assert not open_table(changed).verify(3, 5).same_content
    (info,) = handmade.actions_of(changed, 5, "commitInfo")
    assert re.search(
        r"compaction_kit arrow, plan \w+, proved 1050 rows \w+ \w+ by DuckDB$", info["userMetadata"]
    )


# A commit: whether it says that it changes data, what it calls itself, the files live after it.
COMMITS = st.lists(
    st.tuples(st.booleans(), st.sampled_from(sorted(INFOS)), st.sets(st.sampled_from("abcdef"), min_size=1)),
    min_size=1,
    max_size=8,
)
RECORDS = {"a": 1, "b": 1, "c": 2, "d": 2, "e": 3, "f": None}


@pytest.mark.long
@given(commits=COMMITS)
@examples(8, divided_by=5)
def test_versions_called_the_same_have_the_same_files_or_as_many_rows_by_trusted_names(
    tmp_path_factory: pytest.TempPathFactory, commits: list[tuple[bool, str, set[str]]]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    live: set[str] = set()
    log, states = [], []
    for changes, name, files in commits:
        actions = [handmade.remove(path) for path in sorted(live - files)]
        actions += [handmade.add(path, records=RECORDS[path]) for path in sorted(files - live)]
        log.append([{"commitInfo": INFOS[name]}, *(actions if changes else map(unchanged, actions))])
        states.append(frozenset(live := files))
    handmade.write_log(folder, *log)
    for (one, other), by in ((pair, open_table(folder).diff(*pair).same_content_by) for pair in pairs(log)):
        assert (by == "identical files") == (states[one] == states[other])
        if by and by != "identical files":
            assert total(states[one] - states[other]) == total(states[other] - states[one])
            # A proof of another number of rows is none.
            names = {name: "compaction_kit" if name == "proved" else name for name in INFOS}
            assert any(not changes and names[name] in by for changes, name, _ in commits)
    folders_read = open_table(folder).versions().to_pylist()
    for row in folders_read:
        other = row["same_content_as"]
        assert row["same_content_by"] == (
            None if other is None else open_table(folder).diff(row["version"], other).same_content_by
        )


def pairs(log: list[list[handmade.Action]]) -> list[tuple[int, int]]:
    return [(one, other) for one in range(len(log)) for other in range(one)]


def total(paths: frozenset[str]) -> int:
    return sum(RECORDS[path] or 0 for path in paths)

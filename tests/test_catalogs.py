"""Schemas and catalogs of a session: their tables, and tables whose newest version only a catalog knows."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compaction_kit import find_tables, open_table, survey
from compaction_kit.compat import session_class
from compaction_kit.errors import UnsupportedTableError
from tests import handmade
from tests.conftest import CopyOf
from tests.refusals import refused

NAME = "`my-lake`.default.kit_named"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A session with a second catalog of Delta's, and one that can't be reached."""
    other = spark.newSession()
    other.conf.set("spark.sql.catalog.my-lake", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    other.conf.set("spark.sql.catalog.broken", "no.such.Catalog")
    # Put Delta's catalog over another one, as Unity Catalog's connector does.
    sessions, java = session_class(spark), other._jsparkSession  # type: ignore[attr-defined]
    sessions.setActiveSession(java)
    catalogs = java.sessionState().catalogManager()
    catalogs.catalog("my-lake").setDelegateCatalog(catalogs.v2SessionCatalog())
    sessions.setActiveSession(spark._jsparkSession)  # type: ignore[attr-defined]
    return other


@pytest.fixture
def named(session: SparkSession, shaped: Path, copy_of: CopyOf) -> Iterator[Path]:
    """A copy of a table, with NAME as its name in the catalog, beside a view."""
    path = copy_of(shaped)
    session.sql(f"CREATE TABLE {NAME} USING delta LOCATION '{path}'")
    session.sql("CREATE VIEW kit_view AS SELECT 1 AS a")
    yield path
    session.sql("DROP VIEW kit_view")
    session.sql("DROP TABLE kit_named")


def test_the_tables_of_a_catalog_with_an_odd_name_are_found_opened_and_surveyed(
    session: SparkSession, named: Path
) -> None:
    table = open_table(NAME, session)
    assert (table.path, table.version) == (named, 4)
    for where in ("`my-lake`.default", "`my-lake`"):
        assert NAME in find_tables(where, session)
    assert find_tables("`my-lake`.no_such", session) == find_tables("my-lake.default", session) == []
    found = survey("`my-lake`.default", session)
    (row,) = (row for row in found.to_arrow().to_pylist() if row["table"] == NAME)
    assert (row["error"], row["num_files"]) == (None, table.files().num_files)
    assert "`my-lake`.default.kit_view is a view" in found.skipped


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", ["arrow", "optimize", "rewrite"])
def test_a_table_of_another_catalog_is_compacted(session: SparkSession, named: Path, strategy: str) -> None:
    table = open_table(NAME, session)
    result = table.plan_compaction().run(strategy=strategy)
    assert (result.verified, result.versions, table.version) == (True, (5,), 5)
    if strategy == "rewrite":
        table.plan_vacuum().run()
    assert session.table(NAME).count() == 1050


def test_a_catalog_that_can_t_be_asked_is_named_in_a_sentence(session: SparkSession) -> None:
    for call, name in ((open_table, "broken.a.b"), (find_tables, "broken"), (survey, "broken.a")):
        words = name, "Cannot find catalog plugin class", "no.such.Catalog"
        refused(partial(call, name, session), UnsupportedTableError, *words)


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview"])
def test_a_table_that_its_catalog_manages_is_refused(tmp_path: Path, feature: str) -> None:
    # The table's newest versions may not be in the log, so the kit could only show an old version.
    words = f"managed by its catalog or a coordinator ({feature})"
    protocol = handmade.protocol(features=[feature])
    if feature.startswith("coordinated"):
        protocol["protocol"]["readerFeatures"] = []
    handmade.write_log(tmp_path, [protocol, handmade.add("a")])
    table = open_table(tmp_path)
    assert table.version == 0
    for call in (table.files, table.history, table.versions, table.plan_compaction, table.plan_vacuum):
        refused(call, UnsupportedTableError, words)  # type: ignore[arg-type]
    assert words in survey(tmp_path).to_arrow()["error"][0].as_py()
    staged = tmp_path / "_delta_log/_staged_commits"
    staged.mkdir()
    (staged / f"{1:020}.3b2d1e5a-0000-4000-8000-000000000000.json").write_text("{}")
    refused(partial(open_table, tmp_path), UnsupportedTableError, words)

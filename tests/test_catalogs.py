"""Schemas and catalogs of a session: what they list, and tables that only they know the newest version of."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compaction_kit import find_tables, open_table, survey
from compaction_kit.compat import java_class, session_class
from compaction_kit.errors import UnsupportedTableError
from tests import folders, handmade
from tests.conftest import CopyOf
from tests.test_table import refused

pytestmark = pytest.mark.spark
NAME = "`my-lake`.default.kit_named"
COORDINATORS = "org.apache.spark.sql.delta.coordinatedcommits"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A session with a second catalog of Delta's, one of a database, and one that can't be reached."""
    other = spark.newSession()
    for name, value in {
        "my-lake": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "broken": "no.such.Catalog",
        "db": "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
        "db.url": "jdbc:derby:memory:kit;create=true",
        "db.driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
    }.items():
        other.conf.set(f"spark.sql.catalog.{name}", value)
    # As Unity Catalog's connector does, Delta's catalog is put over another one.
    sessions, java = session_class(spark), other._jsparkSession  # type: ignore[attr-defined]
    sessions.setActiveSession(java)
    catalogs = java.sessionState().catalogManager()
    catalogs.catalog("my-lake").setDelegateCatalog(catalogs.v2SessionCatalog())
    sessions.setActiveSession(spark._jsparkSession)  # type: ignore[attr-defined]
    return other


@pytest.fixture
def named(session: SparkSession, shaped: Path, copy_of: CopyOf) -> Iterator[Path]:
    """A copy of a table that is NAME, beside a view."""
    path = copy_of(shaped)
    session.sql(f"CREATE TABLE {NAME} USING delta LOCATION '{path}'")
    session.sql("CREATE VIEW kit_view AS SELECT 1 AS a")
    yield path
    session.sql("DROP VIEW kit_view")
    session.sql("DROP TABLE kit_named")


def test_the_tables_of_a_catalog_with_an_odd_name_are_found_and_surveyed(
    session: SparkSession, named: Path
) -> None:
    for where in ("`my-lake`.default", "`my-lake`"):
        assert NAME in find_tables(where, session)
    assert find_tables("`my-lake`.no_such", session) == find_tables("my-lake.default", session) == []
    found = survey("`my-lake`.default", session)
    (row,) = (row for row in found.to_arrow().to_pylist() if row["table"] == NAME)
    assert (row["error"], row["num_files"]) == (None, open_table(named).files().num_files)
    assert "`my-lake`.default.kit_view is a view" in found.skipped


@pytest.mark.parametrize(
    "strategy", ["arrow", *(pytest.param(s, marks=pytest.mark.nightly) for s in ("optimize", "rewrite"))]
)
def test_a_table_of_another_catalog_is_compacted_and_vacuumed(
    session: SparkSession, named: Path, strategy: str
) -> None:
    table = open_table(NAME, session)
    assert (table.path, table.version) == (named, 4)
    result = table.plan_compaction().run(strategy=strategy)
    assert (result.verified, result.versions, table.version) == (True, (5,), 5)
    if strategy == "rewrite":
        table.plan_vacuum().run()
    assert session.table(NAME).count() == 1050


@pytest.mark.nightly
def test_what_is_no_delta_table_is_skipped_and_said(session: SparkSession) -> None:
    session.sql("CREATE NAMESPACE db.`odd-one`")
    session.sql("CREATE TABLE db.`odd-one`.`my table` (id INT)")
    found = survey("db.`odd-one`", session)
    assert (len(found), find_tables("db.`odd-one`", session)) == (0, [])
    assert found.skipped == ("db.`odd-one`.`my table` is a table of another format",)


def test_a_catalog_that_can_t_be_asked_is_named_in_a_sentence(session: SparkSession) -> None:
    for call, name in ((open_table, "broken.a.b"), (find_tables, "broken"), (survey, "broken.a")):
        words = name, "Cannot find catalog plugin class", "no.such.Catalog"
        refused(partial(call, name, session), UnsupportedTableError, *words)


@pytest.fixture
def managed(session: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """kit_managed: Delta commits through a coordinator in the JVM's memory, which publishes each fifth one.

    Delta makes such tables for Unity Catalog's server alone, so the feature is written into the first commit.
    """
    path = tmp_path / "managed"
    session.sql(
        f"CREATE TABLE kit_managed (id LONG) USING delta LOCATION '{path}' TBLPROPERTIES "
        "('delta.enableInCommitTimestamps' = 'true', 'delta.feature.vacuumProtocolCheck' = 'supported')"
    )
    actions = [json.loads(line) for line in handmade.commit_path(path, 0).read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            for kind in ("readerFeatures", "writerFeatures"):
                action["protocol"][kind].append("catalogManaged")
    handmade.remove_commits(path, 0)
    handmade.write_commit(path, 0, actions)
    java_class(session, "org.apache.spark.sql.delta.DeltaLog").clearCache()
    coordinator = java_class(session, f"{COORDINATORS}.InMemoryCommitCoordinatorBuilder")(5)
    coordinators = java_class(session, f"{COORDINATORS}.CatalogOwnedCommitCoordinatorProvider$")
    provider = getattr(coordinators, "MODULE$")
    provider.registerBuilder("spark_catalog", coordinator)
    for i in range(3):
        session.sql(f"INSERT INTO kit_managed VALUES ({i})")
    yield path
    session.sql("DROP TABLE kit_managed")
    provider.clearBuilders()


@pytest.mark.nightly
def test_a_table_that_its_catalog_manages_is_refused_by_name_and_by_path(
    session: SparkSession, managed: Path
) -> None:
    # Its newest versions aren't in the log, so all that could be shown would be of an old one.
    staged = list((managed / "_delta_log/_staged_commits").glob("*.json"))
    assert (len(staged), session.table("kit_managed").count()) == (3, 3)
    assert not handmade.commit_path(managed, 3).exists()
    before = folders.listing(managed)
    names: list[str | Path] = ["kit_managed", "spark_catalog.default.kit_managed", managed]
    for name in names:
        words = "managed by its catalog (catalogManaged)"
        refused(partial(open_table, name, session), UnsupportedTableError, words)
    for where in ("default", managed, ["kit_managed"]):
        rows = survey(where, session).to_arrow().to_pylist()
        (row,) = (row for row in rows if row["table"].endswith("managed"))
        assert "managed by its catalog" in row["error"]
        assert row["version"] is None
    # Delta itself compacts no such table, so the kit has nothing to offer.
    with pytest.raises(Exception, match="OPTIMIZE is blocked by the catalog"):
        session.sql("OPTIMIZE kit_managed")
    assert folders.listing(managed) == before


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview"])
def test_a_log_with_staged_commits_is_refused_without_a_session(tmp_path: Path, feature: str) -> None:
    words = f"managed by its catalog ({feature})"
    handmade.write_log(tmp_path, [handmade.protocol(features=[feature]), handmade.add("a")])
    table = open_table(tmp_path)
    assert table.version == 0
    for call in (table.files, table.history, table.versions, table.plan_compaction, table.plan_vacuum):
        refused(call, UnsupportedTableError, words)  # type: ignore[arg-type]
    staged = tmp_path / "_delta_log/_staged_commits"
    staged.mkdir()
    (staged / f"{1:020}.3b2d1e5a-0000-4000-8000-000000000000.json").write_text("{}")
    refused(partial(open_table, tmp_path), UnsupportedTableError, words)

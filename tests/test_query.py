import pytest

from compaction_kit.query import with_table
from compaction_kit.storage import open_store


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ("SELECT * FROM flights", "SELECT * FROM {table}"),
        ("select a.id\nfrom db.flights a join `flights` b", "select a.id\nfrom {table} a join {table} b"),
        ("SELECT * FROM delta.`/lake/flights` WHERE x", "SELECT * FROM {table} WHERE x"),
        ("SELECT * FROM delta.`file:/lake/flights`", "SELECT * FROM {table}"),
        ("SELECT * FROM flights.x JOIN flights_2", "SELECT * FROM flights.x JOIN flights_2"),
        ("SELECT * FROM {table} JOIN flights", "SELECT * FROM {table} JOIN flights"),
        ("origin = 'from flights'", "origin = 'from flights'"),
    ],
)
def test_a_tables_own_name_in_sql_stands_for_the_table(query: str, meant: str) -> None:
    assert with_table(query, open_store("/lake/flights"), "db.flights") == meant

"""Names in SQL text."""

from pathlib import Path


def quoted(name: str) -> str:
    """A name as SQL takes it whatever characters are in it."""
    return "`" + name.replace("`", "``") + "`"


def table_name(table: Path) -> str:
    """The name of the table in a folder."""
    return f"delta.{quoted(str(table))}"

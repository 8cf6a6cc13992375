"""Names and values in SQL text."""

import re
from pathlib import Path

# What a session's settings may read otherwise: quotes, escapes, ${variables}, line ends.
_TOUCHY = re.compile(r"['\\$\x00-\x1f]")


def quoted(name: str) -> str:
    """A name as SQL takes it whatever characters are in it."""
    return "`" + name.replace("`", "``") + "`"


def table_name(table: Path) -> str:
    """The name of the table in a folder."""
    return f"delta.{quoted(str(table))}"


def literal(text: str, kind: str) -> str:
    """A value of a type, from its text; it means the same whatever the session's settings are.

    Args:
        text: The value as the log writes partition values.
        kind: A Delta type, such as "date".
    """
    value = f"CAST(X'{text.encode().hex()}' AS STRING)" if _TOUCHY.search(text) else f"'{text}'"
    return value if kind == "string" else f"CAST({value} AS {kind})"

"""Streams that read a table, as far as the session knows."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compaction_kit.history.needs import Needs
from compaction_kit.text import format_count


@dataclass(frozen=True)
class Stream:
    """A running query and where it is in a table.

    Attributes:
        name: What it is called, or its id.
        version: The version that it reads next; None while it hasn't said.
        is_starting: Whether it still reads the files that were live at that version, as a new
            stream does first.
    """

    name: str
    version: int | None
    is_starting: bool


def running_streams(spark: SparkSession | None, table: Path, table_id: str) -> list[Stream]:
    """The session's streams that read a table, by their last progress.

    Args:
        spark: The session; None has none.
        table: The table's folder.
        table_id: The id in its metadata, which streams know it by.
    """
    try:
        queries = [] if spark is None else list(spark.streams.active)
    except PySparkException:
        return []
    found = []
    for query in queries:
        progress = query.lastProgress
        # One that hasn't finished a batch doesn't say what it reads.
        sources = [] if progress is None else json.loads(progress.json)["sources"]
        reading = (source for source in sources if _reads(source, table, table_id))
        found += [_stream(query.name or str(query.id), source) for source in reading]
    return found


def at_risk(streams: Sequence[Stream], needs: Needs, going: pa.Array) -> list[str]:
    """A sentence for each stream that has files still to read that would go.

    Args:
        streams: Those that read the table.
        needs: Which versions need which files.
        going: The paths that would go.
    """
    hits = needs.files.filter(pc.is_in(needs.files["path"], value_set=going))
    return [sentence for stream in streams if (sentence := _risk(stream, hits))]


def _risk(stream: Stream, hits: pa.Table) -> str | None:
    if stream.version is None:
        return f"The stream {stream.name} reads this table and hasn't said how far it is: wait for it."
    ahead = pc.greater_equal(hits["added"], stream.version)
    if stream.is_starting:
        ahead = pc.or_(ahead, pc.greater(hits["removed"], stream.version))
    number = pc.count_distinct(hits.filter(ahead)["path"]).as_py()
    if not number:
        return None
    return (
        f"The stream {stream.name} is at version {stream.version} and may still have to read "
        f"{format_count(number, 'file')} that would go: let it catch up first."
    )


def _stream(name: str, source: dict[str, Any]) -> Stream:
    offset = _offset(source)
    return Stream(name, offset.get("reservoirVersion"), bool(offset.get("isStartingVersion")))


def _reads(source: dict[str, Any], table: Path, table_id: str) -> bool:
    # DeltaSourceOffset's name for the table's id; a first batch may have no offset yet.
    known = _offset(source).get("reservoirId")
    description = str(source.get("description", ""))
    return known == table_id if known else description == f"DeltaSource[file:{table}]"


def _offset(source: dict[str, Any]) -> dict[str, Any]:
    offset = source.get("endOffset") or {}
    return json.loads(offset) if isinstance(offset, str) else offset

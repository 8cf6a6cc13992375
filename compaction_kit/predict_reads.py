"""Predict how many files a query would open in layouts that a compaction could make.

What it opens now is Delta's own plan of it. For another layout the kit writes, to a scratch folder, the log
of a table without data files: the adds that the bins' outputs would have, with the ranges of values of their
inputs. Delta plans the query on that table too, so that its own data skipping decides, whatever the query is.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from pyspark.sql import DataFrame

from compaction_kit import plots
from compaction_kit.arrow.actions import merge_stats, physical_schema
from compaction_kit.arrow.job import partition_values
from compaction_kit.errors import InvalidArgumentError
from compaction_kit.execute.contents import ANY_VERSION
from compaction_kit.execute.jobs import session_confs
from compaction_kit.files import Files
from compaction_kit.handle import Handle
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.plan.order import INGEST, SIZE, column_of, order_by
from compaction_kit.plan.plan import BinPlan
from compaction_kit.query import (
    SPARK_ERRORS,
    Query,
    name_of,
    parse_query,
    quoted_query,
    reason_of,
    with_table,
)
from compaction_kit.reads import frame_at, prepare_read
from compaction_kit.records import Record
from compaction_kit.session import quiet_errors
from compaction_kit.sql import plain_path, uri
from compaction_kit.text import as_html_table, format_count, format_size

_MOST_COLUMNS = 3
_WHERE = re.compile(r"\bwhere\b", re.IGNORECASE)
# Other properties ask more of a log than this one has; these decide how stats are read.
_PROPERTIES = ("delta.columnMapping", "delta.dataSkipping")
_LAYOUTS = pa.schema(
    [
        ("layout", pa.string()),
        ("num_files", pa.int64()),
        ("files_opened", pa.int64()),
        ("bytes_opened", pa.int64()),
    ]
)
_NOTHING = "With these thresholds a compaction rewrites nothing, so that no other layout is predicted."
_OTHER_FILES = (
    "Other layouts can't be predicted for this query: planned on a copy of the log, it opens other files "
    "than on the table."
)
Step = Callable[[float, str], object]


@dataclass(frozen=True, repr=False)
class ReadPrediction(Record):
    """How many files one query opens now, and would open in other layouts; made by `predict_reads`.

    Attributes:
        query: The query's text, or the name of the function.
        version: The version that is now.
        layouts: One row a layout: layout (string: "now", "by OPTIMIZE", "by ingestion", "by <column>",
            "by this plan"), num_files of the table, files_opened by the query, bytes_opened: the size of
            those that are the table's (int64).
        unpredicted: Why there is no layout but "now", in one sentence; empty if there is.
    """

    query: str
    version: int
    layouts: pa.Table
    unpredicted: str = ""

    @property
    def finding(self) -> str:
        """What it opens now, and the layout in which it would open the fewest files."""
        now, *others = self.layouts.to_pylist()
        if not now["files_opened"]:
            return f"The query opens no file: version {self.version}'s log answers it, or rules out all files"
        finding = (
            f"The query opens {now['files_opened']:,} of {format_count(now['num_files'], 'file')} now "
            f"({format_size(now['bytes_opened'])})"
        )
        if not others:
            return finding
        best = min(others, key=lambda row: (row["files_opened"], row["bytes_opened"]))
        if best["files_opened"] >= now["files_opened"]:
            return f"{finding}, and none of these compactions makes it open fewer"
        return (
            f"{finding}; compacted {best['layout']}, {best['files_opened']:,} of {best['num_files']:,} "
            f"({format_size(best['bytes_opened'])})"
        )

    def explain(self) -> str:
        """Say who claims what, a sentence a line."""
        how = self.unpredicted or (
            "The others are predictions: as Delta plans it for the ranges of values that files would have."
        )
        return (
            f"{self.finding}.\nNow is as Delta plans this query on version {self.version}, skipping files by "
            f"partition and stats. {how}"
        )

    def facts(self) -> dict[str, str]:
        """The files that the query opens in each layout."""
        return {row[0]: f"{row[1]} of {row[2]} files, {row[3]}" for row in self._rows()}

    def plot(self) -> Figure:
        """Draw the files opened in each layout."""
        return plots.predicted_reads(self.query, self.layouts, self.finding)

    def parts(self) -> Sequence[object]:
        """The sentences, the layouts as a table, and drawn."""
        head = ("layout", "files opened", "of", "bytes in them")
        return self.explain(), as_html_table(head, self._rows()), self.plot()

    def _rows(self) -> list[list[str]]:
        return [
            [layout, f"{opened:,}", f"{files:,}", format_size(size_bytes)]
            for layout, files, opened, size_bytes in (row.values() for row in self.layouts.to_pylist())
        ]


@dataclass(frozen=True)
class _Layout:
    """Adds as a log has them, and the bytes of each by its decoded path."""

    name: str
    adds: list[dict[str, Any]]

    def row(self, opened: set[str]) -> dict[str, Any]:
        sizes = {plain_path(unquote(add["path"])): add["size"] for add in self.adds}
        return {
            "layout": self.name,
            "num_files": len(self.adds),
            "files_opened": len(opened),
            "bytes_opened": sum(sizes.get(path, 0) for path in opened),
        }


def predict_reads(
    plan: BinPlan, handle: Handle, query: Query, progress: Step | None = None
) -> ReadPrediction:
    """Count the files that a query opens now, after OPTIMIZE with a plan's thresholds, and after each order.

    Orders by a column are those by the columns that the query's condition names, three at most. The output
    of a bin is taken to be one file with the ranges of all its inputs, as "arrow" writes it; one whose
    inputs have no stats is opened by every query.

    Args:
        plan: The plan, for its files, thresholds, order and budget.
        handle: The table.
        query: As for `reads.measure_reads`.
        progress: Called with the share that is done and the next step, in words; an exception that it
            raises ends the work.

    Raises:
        InvalidArgumentError: The query can't be used.
    """
    step, spark = progress or (lambda share, text: None), handle.spark
    query = with_table(query, handle.store, handle.name)
    make, words, orders = parse_query(spark, query), quoted_query(query), _orders(plan, query)
    step(0.0, "Planning the query as it is now")

    def opened(rows: DataFrame, root: str) -> set[str]:
        return {_within(name, root) for name in prepare_read(make, rows, plan.version, words).files}

    with quiet_errors(), session_confs(spark, ANY_VERSION):
        files = opened(frame_at(spark, handle.uri, plan.version, "version"), handle.uri)
        layouts = _layouts(plan, orders)
        now = next(layouts)
        rows, unpredicted = [now.row(files)], ""
        try:
            with tempfile.TemporaryDirectory(prefix="compaction-kit-") as scratch:
                for number, layout in enumerate(chain([now], layouts)):
                    step(
                        (number + 1) / (len(orders) + 2),
                        f"Planning it on other files: {layout.name}",
                    )
                    folder = Path(scratch) / str(number)
                    _write_log(folder, plan.source, layout)
                    found = opened(spark.read.format("delta").load(uri(folder)), uri(folder))
                    if number:
                        rows.append(layout.row(found))
                    elif found != files:
                        unpredicted = _OTHER_FILES
                        break
        except (InvalidArgumentError, *SPARK_ERRORS) as error:
            why = str(error) if isinstance(error, InvalidArgumentError) else f"{reason_of(error)}."
            rows, unpredicted = rows[:1], f"Other layouts can't be predicted here: {why}"
    if len(rows) == 1 and not unpredicted:
        unpredicted = _NOTHING
    return ReadPrediction(name_of(query), plan.version, pa.Table.from_pylist(rows, _LAYOUTS), unpredicted)


def _orders(plan: BinPlan, query: Query) -> dict[str, BinPlan]:
    """A plan for each layout to predict."""
    orders = {"by OPTIMIZE": SIZE, "by ingestion": INGEST}
    orders |= {f"by {column}": order_by(column) for column in _columns(plan, query)}
    made = {name: BinPlan.of(plan.planner, plan.thresholds, order=order) for name, order in orders.items()}
    return made if plan.budget is None else made | {"by this plan": plan}


def _layouts(plan: BinPlan, plans: dict[str, BinPlan]) -> Iterator[_Layout]:
    """The live files now, and after each plan that rewrites any."""
    snapshot = plan.source.snapshot
    source, schema = Files(snapshot), physical_schema(snapshot.metadata)
    everything = np.arange(source.num_files)
    columns = (
        *(source.paths(everything).to_pylist(), partition_values(source, everything)),
        *(source.sizes.tolist(), snapshot.stats.to_pylist()),
    )
    adds = [_add(*values) for values in zip(*columns, strict=True)]
    yield _Layout("now", adds)
    for name, other in plans.items():
        if other.is_empty:
            continue
        positions, bin_ids = other.members
        inputs = np.split(plan.source.in_snapshot(positions), np.flatnonzero(np.diff(bin_ids)) + 1)
        rewritten = set(np.concatenate(inputs).tolist())
        outputs = [
            _add(
                f"bin-{number}.parquet",
                adds[members[0]]["partitionValues"],
                size_bytes,
                merge_stats([adds[row].get("stats") for row in members], schema).text or None,
            )
            for number, (members, size_bytes) in enumerate(
                zip(inputs, other.outcome.bytes_added.tolist(), strict=True)
            )
        ]
        yield _Layout(name, [add for row, add in enumerate(adds) if row not in rewritten] + outputs)


def _columns(plan: BinPlan, query: Query) -> list[str]:
    """The columns to order by: the plan's own, and those with bounds that the query's condition names."""
    text = query if isinstance(query, str) else ""
    _, *conditions = _WHERE.split(text) if "{table}" in text else ("", text)
    names = [column_of(plan.order), *plan.source.data_columns]
    words = set(re.findall(r"\w+", " ".join(conditions).lower()))
    found = [name for name in names if name and (name == names[0] or name.lower() in words)]
    return [name for name in dict.fromkeys(found) if _has_bounds(plan.source, name)][:_MOST_COLUMNS]


def _has_bounds(files: Files, column: str) -> bool:
    try:
        return bool(files.bounds(column).known.any())
    except InvalidArgumentError:
        return False


def _add(path: str, values: dict[str, str | None], size_bytes: int, stats: str | None) -> dict[str, Any]:
    add = {"path": path, "partitionValues": values, "size": size_bytes, "modificationTime": 0}
    return {**add, "dataChange": True, **({"stats": stats} if stats else {})}


def _write_log(folder: Path, source: Files, layout: _Layout) -> None:
    """Write the log of a table with these adds, and with what else decides which of them a query opens."""
    protocol, metadata = source.snapshot.protocol, source.snapshot.metadata
    features = {
        f"{name}Features": sorted(given)
        for name, given in (("reader", protocol.reader_features), ("writer", protocol.writer_features))
        if given
    }
    versions = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
    }
    kept = {key: value for key, value in metadata.configuration.items() if key.startswith(_PROPERTIES)}
    table = {
        "id": "scratch",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(metadata.schema),
        "partitionColumns": list(metadata.partition_columns),
        "configuration": kept,
    }
    actions = [{"protocol": versions | features}, {"metaData": table}, *({"add": add} for add in layout.adds)]
    (folder / LOG_FOLDER).mkdir(parents=True)
    text = "\n".join(map(json.dumps, actions))
    (folder / LOG_FOLDER / f"{0:020d}.json").write_text(text, encoding="utf-8")


def _within(name: str, root: str) -> str:
    """A file's path in the table, or all of it if it is elsewhere; Delta gives paths that aren't encoded."""
    return plain_path(name).removeprefix(f"{plain_path(root)}/")

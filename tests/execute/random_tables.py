"""Small random tables and random settings to optimize them with: recipes, and the tables made from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests import handmade
from tests.handmade import Action

T = TypeVar("T")

# Texts of partition values in the log, by type; many are the same value in another spelling.
VALUES: dict[str, list[str | None]] = {
    "string": [
        *("a", "A", "a b", " a", "100%", "ü", "k=v", "n/m", "it's", 'say "so"', "a%20b", "#?&", "1", "01"),
        *(None, ""),
    ],
    "integer": ["1", "01", "+1", " 1", "-1", "0", "-0", "", None],
    "date": ["2024-01-01", "2024-1-1", "2024-02-29", "0099-01-01", "", None],
    "double": ["1.0", "1e0", "1", "NaN", "Infinity", "-0.0", "0", "", None],
    "timestamp": [
        *("2024-01-01 00:00:00", "2024-01-01T00:00:00.000000Z", "2024-01-01 02:00:00+02:00", "2024-01-01"),
        *("2024-01-01 00:00:00.5", "", None),
    ],
    "boolean": ["true", "True", "t", "1", "false", "no", "", None],
}
ROWS_PER_FILE = 1_000
# If it is false, different texts are different partition values.
NORMALIZES = "spark.databricks.delta.normalizePartitionValuesOnRead"
_IN_URIS = "/=:&$,;@+!'()*~"


@dataclass(frozen=True)
class DataFile:
    """A data file, with its path and partition in the log, and the commit that adds it."""

    number: int
    path: str
    partition: dict[str, str | None]
    rows: int
    size: int
    deleted: int
    counted: bool
    commit: int

    @property
    def add(self) -> Action:
        vector = handmade.inline_vector(range(self.deleted)) if self.deleted else None
        return handmade.add(self.path, self.size, self.partition, self.rows if self.counted else None, vector)

    def write(self, table: Path) -> None:
        """Write rows whose ids identify the file, and pad the file to its size."""
        start, place = self.number * ROWS_PER_FILE, table / unquote(self.path)
        rows = pa.table({"id": pa.array(range(start, start + self.rows), pa.int64())})
        padding = self.size - len(_parquet(rows, 0))
        while (missing := self.size - len(content := _parquet(rows, padding))) != 0:
            padding += missing
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


@dataclass(frozen=True)
class Recipe:
    """A table, and how it is optimized: an optional predicate, and settings of the session."""

    seed: int
    partition_by: dict[str, str]
    files: tuple[DataFile, ...]
    where: str | None
    confs: dict[str, str]

    def write(self, table: Path) -> None:
        """Make the table."""
        head = [
            handmade.protocol(features=["deletionVectors"]),
            handmade.metadata({"id": "long", **self.partition_by}, list(self.partition_by)),
        ]
        commits: list[list[Action]] = [head, [], []]
        for file in self.files:
            file.write(table)
            commits[file.commit].append(file.add)
        commits = [actions for actions in commits if actions]
        handmade.write_log(table, *commits)


def files_of(ids: Sequence[int]) -> frozenset[int]:
    """The numbers of the files that rows come from."""
    return frozenset(number // ROWS_PER_FILE for number in ids)


def random_recipe(seed: int) -> Recipe:
    """Return a random table and settings, with few different values of each, so that they coincide."""
    rng = np.random.default_rng(seed)
    types = rng.choice(sorted(VALUES), pick(rng, [0, 1, 1, 2]), replace=False).tolist()
    partition_by = dict(zip(("p", "q q"), types, strict=False))
    pools = [[pick(rng, VALUES[kind]) for _ in range(pick(rng, [1, 2, 2, 3]))] for kind in types]
    num_files = pick(rng, [0, 2, 3, 5, 7, 9, 11, 13, 14, 14])
    settings = {
        "optimize.minFileSize": pick(rng, [10**9, 10**9, 10**9, 3_000, 2_000, 1_001, 1_000]),
        "optimize.maxFileSize": pick(rng, [2_000, 2_001, 3_000, 5_000, 6_000, 10**9]),
        "optimize.maxDeletedRowsRatio": pick(rng, [0.05, 0.05, 0.0, 0.5]),
        "optimize.batchSize": pick(rng, [None, None, 1, 2_500, 6_000]),
        "snapshotPartitions": pick(rng, [1, 1, 2, 2, 3, 5]),
    }
    return Recipe(
        seed,
        partition_by,
        tuple(_file(rng, number, dict(zip(partition_by, pools, strict=True))) for number in range(num_files)),
        _predicate(rng, partition_by, pools),
        {
            f"spark.databricks.delta.{name}": str(value)
            for name, value in settings.items()
            if value is not None
        }
        | {NORMALIZES: pick(rng, ["true", "true", "true", "false"])},
    )


def pick(rng: np.random.Generator, values: Sequence[T]) -> T:
    """One of these values."""
    return values[int(rng.integers(len(values)))]


def _file(rng: np.random.Generator, number: int, pools: Mapping[str, list[str | None]]) -> DataFile:
    partition = {name: pick(rng, pool) for name, pool in pools.items()}
    rows = pick(rng, [0, 1, 2, 19, 20, 20, 21, 40, 40])
    # Delta escapes values as Hive does, and then the path as a URI.
    path = "".join(
        f"{name}={quote(value or '__HIVE_DEFAULT_PARTITION__', safe=' ü&')}/"
        for name, value in partition.items()
    )
    path += f"{pick(rng, ['f', 'f', 'g', 'part 0-', '100%-', 'ü-'])}{number}.parquet"
    return DataFile(
        number,
        "".join(c if ord(c) > 127 else quote(c, safe=_IN_URIS) for c in path),
        partition,
        rows,
        size=pick(rng, [1_000, 1_000, 1_000, 1_001, 1_500, 2_000, 2_999, 3_000]),
        deleted=min(rows, pick(rng, [0, 0, 0, 0, 1, 1, 2, 40])),
        counted=pick(rng, [True, True, True, False]),
        commit=pick(rng, [0, 0, 1, 2]),
    )


def _predicate(
    rng: np.random.Generator, partition_by: Mapping[str, str], pools: list[list[str | None]]
) -> str | None:
    """Return a predicate over values that occur or, more often, None."""
    if not partition_by or pick(rng, [True, True, False]):
        return None
    if any("" in pool for pool, kind in zip(pools, partition_by.values(), strict=True) if kind != "string"):
        return None  # Spark casts "" before it looks at the predicate, and that fails
    terms = [
        _term(name, kind, pick(rng, pool))
        for (name, kind), pool in zip(partition_by.items(), pools, strict=True)
    ]
    either = pick(rng, [" OR ", " OR ", " AND "]).join(terms)
    return pick(rng, [either, either, f"NOT ({either})"])


def _term(column: str, kind: str, value: str | None) -> str:
    if value is None or (value == "" and kind != "string"):
        return f"`{column}` IS NULL"
    text = value.replace("'", "\\'")
    return f"`{column}` = CAST('{text}' AS {kind.replace('integer', 'int')})"


def _parquet(rows: pa.Table, padding: int) -> bytes:
    buffer = BytesIO()
    with pq.ParquetWriter(
        buffer,
        rows.schema,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    ) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({"padding": "x" * padding})
    return buffer.getvalue()

"""Small tables by chance, to be optimized by chance: recipes, and the tables made from them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal, TypeVar, get_args
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests import handmade
from tests.handmade import Action

Life = Literal["stays", "leaves", "returns", "is marked later"]
T = TypeVar("T")
Values = tuple[str | None, ...]

# What the log may say of a partition value, and how Delta writes the same value itself.
_NULL: dict[str | None, str | None] = {"": None, None: None}
_TEXTS = ("a", "A", "a b", " a", "100%", "ü", "k=v", "n/m", "it's", 'say "so"', "a%20b", "#?&", "1", "01")
VALUES: dict[str, dict[str | None, str | None]] = {
    "string": {**{text: text for text in _TEXTS}, None: None, "": None},
    "integer": {**dict.fromkeys(("1", "01", "+1", " 1"), "1"), "-1": "-1", "0": "0", "-0": "0", **_NULL},
    "date": {
        **dict.fromkeys(("2024-01-01", "2024-1-1", "2024-01-01 10:00:00", "2024-01"), "2024-01-01"),
        **{day: day for day in ("2024-02-29", "0099-01-01")},
        **_NULL,
    },
    "double": {
        **dict.fromkeys(("1.0", "1e0", "1"), "1.0"),
        **{number: number for number in ("NaN", "Infinity", "-0.0")},
        "0": "0.0",
        **_NULL,
    },
    "timestamp": {
        **dict.fromkeys(
            ("2024-01-01 00:00:00", "2024-01-01T00:00:00.000000Z", "2024-01-01 02:00:00+02:00", "2024-01-01"),
            "2024-01-01T00:00:00.000000Z",
        ),
        "2024-01-01 00:00:00.5": "2024-01-01T00:00:00.500000Z",
        **_NULL,
    },
    "boolean": {
        **dict.fromkeys(("true", "True", "t", "1"), "true"),
        **dict.fromkeys(("false", "no"), "false"),
        **_NULL,
    },
}
ROWS_PER_FILE = 1_000
_IN_URIS = "/=:&$,;@+!'()*~"


@dataclass(frozen=True)
class DataFile:
    """A data file, and what the log tells of it: from which commit on, and what becomes of it."""

    name: str
    values: Values
    rows: int
    size: int
    deleted: int
    counted: bool
    commit: int
    life: Life


@dataclass(frozen=True)
class Recipe:
    """A table, and how it is optimized."""

    seed: int
    partition_by: dict[str, str]
    files: tuple[DataFile, ...]
    where: str | None
    min_file_size: int
    max_file_size: int
    max_deleted_rows_ratio: float
    batch_size: int | None
    snapshot_partitions: int

    @property
    def confs(self) -> dict[str, str]:
        """The settings of the session that it is optimized in."""
        batch = {} if self.batch_size is None else {"optimize.batchSize": self.batch_size}
        settings = {
            "optimize.minFileSize": self.min_file_size,
            "optimize.maxFileSize": self.max_file_size,
            "optimize.maxDeletedRowsRatio": self.max_deleted_rows_ratio,
            "snapshotPartitions": self.snapshot_partitions,
            **batch,
        }
        return {f"spark.databricks.delta.{name}": str(value) for name, value in settings.items()}

    def live(self) -> dict[str, tuple[int, DataFile]]:
        """The files to choose from and their numbers, by path as the log writes it."""
        return {
            self.path(number): (number, file)
            for number, file in enumerate(self.files)
            if file.life != "leaves"
        }

    def partition(self, number: int) -> dict[str, str | None]:
        """A file's partition values as Delta writes them."""
        values = zip(self.partition_by.items(), self.files[number].values, strict=True)
        return {name: VALUES[kind][value] for (name, kind), value in values}

    def path(self, number: int) -> str:
        """A file's path as the log writes it: escaped as Hive does, then as URIs are, as Delta does."""
        file = self.files[number]
        folders = [
            f"{name}={quote(value or '__HIVE_DEFAULT_PARTITION__', safe=' ü&')}/"
            for name, value in zip(self.partition_by, file.values, strict=True)
        ]
        path = "".join([*folders, f"{file.name}{number}.parquet"])
        return "".join(c if ord(c) > 127 else quote(c, safe=_IN_URIS) for c in path)

    def write(self, table: Path) -> None:
        """Make the table."""
        types = {"id": "long", **self.partition_by}
        head = [
            handmade.protocol(features=["deletionVectors"]),
            handmade.metadata(types, list(self.partition_by)),
        ]
        commits: list[list[Action]] = [head, *([] for _ in range(4))]
        for number, file in enumerate(self.files):
            _write_file(table / unquote(self.path(number)), number, file)
            for commit, actions in enumerate(self._life(number), file.commit):
                commits[commit] += actions
        commits = [actions for actions in commits if actions]
        handmade.write_log(table, *commits)
        self._write_checksum(table, len(commits) - 1, head)

    def _write_checksum(self, table: Path, version: int, head: list[Action]) -> None:
        """With it Delta need not sum up the log before it begins."""
        live = self.live().values()
        checksum = {
            "tableSizeBytes": sum(file.size for _, file in live),
            "numFiles": len(live),
            "numMetadata": 1,
            "numProtocol": 1,
            "setTransactions": [],
            "domainMetadata": [],
            **head[0],
            "metadata": head[1]["metaData"],
        }
        handmade.commit_path(table, version, "crc").write_text(json.dumps(checksum))

    def _life(self, number: int) -> list[list[Action]]:
        """What a file's first, second and third commit say of it."""
        file, path = self.files[number], self.path(number)
        partition = dict(zip(self.partition_by, file.values, strict=True))
        records = file.rows if file.counted else None
        vector = handmade.inline_vector(range(file.deleted)) if file.deleted else None
        added = [handmade.add(path, file.size, partition, records, vector)]
        removed = [handmade.remove(path, vector=vector)]
        if file.life == "is marked later":
            unmarked = handmade.add(path, file.size, partition, records)
            return [[unmarked], [*([handmade.remove(path)] if vector else []), *added]]
        return [
            added,
            *([removed] if file.life != "stays" else []),
            *([added] if file.life == "returns" else []),
        ]


def files_of(ids: Sequence[int]) -> frozenset[int]:
    """The numbers of the files that rows come from."""
    return frozenset(number // ROWS_PER_FILE for number in ids)


def random_recipe(seed: int) -> Recipe:
    """A table and settings by chance; few different values of each, so that they meet."""
    rng = np.random.default_rng(seed)
    types = rng.choice(sorted(VALUES), pick(rng, [0, 1, 1, 2]), replace=False).tolist()
    partition_by = dict(zip(("p", "q q"), types, strict=False))
    pools = [[pick(rng, list(VALUES[kind])) for _ in range(pick(rng, [1, 2, 2, 3]))] for kind in types]
    files = tuple(_file(rng, pools) for _ in range(pick(rng, [0, 2, 3, 5, 7, 9, 11, 13, 14, 14])))
    return Recipe(
        seed,
        partition_by,
        files,
        _predicate(rng, partition_by, pools),
        pick(rng, [10**9, 10**9, 10**9, 3_000, 2_000, 1_001, 1_000]),
        pick(rng, [2_000, 2_001, 3_000, 5_000, 6_000, 10**9]),
        pick(rng, [0.05, 0.05, 0.0, 0.5]),
        pick(rng, [None, None, 1, 2_500, 6_000]),
        pick(rng, [1, 1, 2, 2, 3, 5]),
    )


def pick(rng: np.random.Generator, values: Sequence[T]) -> T:
    """One of these values."""
    return values[int(rng.integers(len(values)))]


def _file(rng: np.random.Generator, pools: list[list[str | None]]) -> DataFile:
    rows = pick(rng, [0, 1, 2, 19, 20, 20, 21, 40, 40])
    return DataFile(
        pick(rng, ["f", "f", "g", "part 0-", "100%-", "ü-"]),
        tuple(pick(rng, pool) for pool in pools),
        rows,
        pick(rng, [1_000, 1_000, 1_000, 1_001, 1_500, 2_000, 2_999, 3_000]),
        min(rows, pick(rng, [0, 0, 0, 0, 1, 1, 2, 40])),
        pick(rng, [True, True, True, False]),
        pick(rng, [0, 0, 1, 2]),
        pick(rng, ["stays", "stays", "stays", *get_args(Life)]),
    )


def _predicate(
    rng: np.random.Generator, partition_by: Mapping[str, str], pools: list[list[str | None]]
) -> str | None:
    """One over the values that there are, or, more often, none."""
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


def _write_file(path: Path, number: int, file: DataFile) -> None:
    """Rows whose ids tell the file, with as many bytes of padding as make up its size."""
    start = number * ROWS_PER_FILE
    rows = pa.table({"id": pa.array(range(start, start + file.rows), pa.int64())})
    padding = file.size - len(_parquet(rows, 0))
    while (missing := file.size - len(content := _parquet(rows, padding))) != 0:
        padding += missing
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


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

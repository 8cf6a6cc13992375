"""Random valid logs are read version by version as Delta reads them."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from compaction_kit import open_table
from compaction_kit.errors import CorruptLogError, InvalidArgumentError
from compaction_kit.log import TransactionLog
from compaction_kit.log.paths import places
from tests import checkpoints, deltas_view, handmade
from tests.chance import examples
from tests.deltas_view import State
from tests.handmade import Action

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

Kind = Literal["classic", "parts", "v2 uuid.json", "v2 uuid.parquet", "v2 parquet"]
MISSING, EMPTY = "a file is missing", "a file is empty"

# Both Delta and the kit must keep every tombstone, so that they can be compared.
FOREVER = {
    "delta.deletedFileRetentionDuration": "interval 36500 days",
    "delta.logRetentionDuration": "interval 36500 days",
}
PATHS = [
    "a.parquet",
    "p=1%202/b%2Bc.parquet",
    "p=n%252Fm/d.parquet",
    "p=%C3%BC/x.y=7/e.parquet",
    "/elsewhere/f%20g.parquet",
    "file:///elsewhere/h.parquet",
    "s3://bucket/i%23j.parquet",
    "p=%7B%22k%22%3A%20'l'%7D.parquet",
]
STATS = [
    None,
    '{"numRecords":0}',
    '{"numRecords":7,"minValues":{"id":1},"maxValues":{"id":9}}',
    '{"numRecords": 12345678901, "maxValues": {"id": 5}}',
    '{"minValues":{"id":3},"numRecords":8}',
    '{"minValues":{"id":3}}',
]
OTHERS: list[Action] = [
    {"commitInfo": {"timestamp": 1, "operation": "WRITE", "operationMetrics": {"numFiles": "1"}}},
    {"txn": {"appId": "app", "version": 7}},
    {"cdc": {"path": "a.parquet", "partitionValues": {}, "size": 1, "dataChange": False}},
    {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
    {"fromTheFuture": {"path": "a.parquet"}},
]
VALUES = st.sampled_from([None, "", "0", "7", "ü \"{',\\", "__HIVE_DEFAULT_PARTITION__"])
VECTORS = [
    None,
    handmade.vector("ab^-aqEH.-t@S}K{vb[*k^", 3, "u") | {"offset": 4},
    handmade.vector("ab^-aqEH.-t@S}K{vb[*k^", 4, "u") | {"offset": 0},
    handmade.vector("file:///elsewhere/deletion%20vector.bin", 5, "p") | {"offset": 1},
    handmade.vector("wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 6, "i"),
]


@dataclass(frozen=True)
class Checkpoint:
    version: int
    kind: Kind
    stats: checkpoints.Stats
    parts: int
    damage: str | None

    def write(self, table: Path, state: checkpoints.State) -> None:
        if self.kind in ("classic", "parts"):
            parts = self.parts + 1 if self.kind == "parts" else None
            file, *_ = checkpoints.write_classic(table, self.version, state, self.stats, parts)
        else:
            suffix = self.kind.removeprefix("v2 ")
            file, *_ = checkpoints.write_v2(table, self.version, state, self.stats, suffix, self.parts)
        if self.damage == MISSING:
            file.unlink()
        elif self.damage == EMPTY:
            file.write_bytes(b"")


@dataclass(frozen=True)
class Log:
    commits: list[list[Action]]
    checkpoints: list[Checkpoint]
    compacted: list[tuple[int, int]]
    hint: str | None
    lost: set[int]
    spelling: dict[str, Any]
    nulls: Action
    line_end: str
    end: str

    def write(self, table: Path) -> None:
        (table / "_delta_log").mkdir()
        for version, actions in enumerate(self.commits):
            lines = (json.dumps(self.nulls | action, **self.spelling) for action in actions)
            handmade.commit_path(table, version).write_text(self.line_end.join(lines) + self.end)
        for checkpoint in self.checkpoints:
            checkpoint.write(table, checkpoints.replay(self.commits[: checkpoint.version + 1]))
        for first, last in self.compacted:
            checkpoints.write_compacted(table, first, last, self.commits[first : last + 1])
        if self.hint is not None:
            (table / "_delta_log" / "_last_checkpoint").write_text(self.hint)
        handmade.remove_commits(table, *self.lost)

    def replayed(self, version: int) -> State:
        state = checkpoints.replay(self.commits[: version + 1])
        metadata = state.others["metaData"]
        columns = metadata["partitionColumns"]
        names = deltas_view.physical_names(metadata["schemaString"])
        dead = {named(*key): file.get("deletionTimestamp") for key, file in state.dead.items()}
        live = {
            named(*key): (
                file["size"],
                {name: file["partitionValues"].get(names[name]) for name in columns},
                json.loads(file.get("stats") or "{}").get("numRecords"),
            )
            for key, file in state.live.items()
        }
        return State(metadata["schemaString"], columns, dead | live)


def named(path: str, vector: str | None) -> deltas_view.Key:
    return deltas_view.decoded(path), vector


@st.composite
def logs(draw: st.DrawFn, kind: Kind | None) -> Log:
    """Draw a log with checkpoints, one of them of `kind`; or without checkpoints if it is None."""
    v2 = kind is not None and kind.startswith("v2")
    upgrade = draw(st.sampled_from([0, 0, 1] if v2 else [0, 2, None]))
    commits = draw(histories(upgrade))
    versions = st.integers(0, len(commits) - 1)
    made: dict[int, Kind] = {}
    if kind is not None:
        made = dict.fromkeys(
            draw(st.lists(versions, max_size=2)), draw(st.sampled_from(["classic", "parts"]))
        )
        made[draw(versions.filter(lambda version: not v2 or version >= (upgrade or 0)))] = kind
    stats, damages = (
        st.sampled_from(get_args(checkpoints.Stats)),
        st.sampled_from([None] * 3 + [MISSING, EMPTY]),
    )
    written = [
        Checkpoint(version, of_kind, draw(stats), draw(st.integers(0, 3)), draw(damages))
        for version, of_kind in made.items()
    ]
    # Checkpoints that exist, that are gone or never existed, and an incomplete hint. Delta waits for three
    # seconds in case the incomplete hint is still being written.
    hints = [json.dumps({"version": version, "size": 1}) for version in [*made] * 3 + [0, 3, 100]]
    ranges = st.tuples(versions, versions).filter(lambda pair: pair[0] < pair[1])
    return Log(
        commits,
        written,
        draw(st.lists(ranges, max_size=2, unique=True)),
        draw(st.sampled_from([None, None, None, *hints, '{"version":1,'])),
        draw(losses(len(commits), [one.version for one in written if not one.damage])),
        {"ensure_ascii": draw(st.booleans()), "separators": draw(st.sampled_from([None, (",", ":")]))},
        draw(st.sampled_from([{}, dict.fromkeys(("add", "remove", "protocol"))])),
        draw(st.sampled_from(["\n", "\r\n", "\n\n"])),
        draw(st.sampled_from(["\n", "", "\n\n"])),
    )


@st.composite
def histories(draw: st.DrawFn, upgrade: int | None) -> list[list[Action]]:
    """Draw commits as a writer may make them; the table has features from version `upgrade` on."""
    state = checkpoints.State()
    commits: list[list[Action]] = []
    for version in range(draw(st.integers(2, 8))):
        actions: list[Action] = []
        if version in (0, upgrade):
            features = ["columnMapping", "deletionVectors", "v2Checkpoint"] if version == upgrade else []
            actions.append(handmade.protocol(features=features))
        upgraded = upgrade is not None and version >= upgrade
        if version == 0 or draw(st.integers(0, 5)) == 0:
            actions.append(draw(metadata(upgraded)))
        for path in draw(st.lists(st.sampled_from(PATHS), max_size=4, unique=True)):
            actions += draw(changes(state, path, upgraded))
        actions += draw(st.lists(st.sampled_from(OTHERS), max_size=2))
        # A commit without actions is refused, because it may have lost them.
        commits.append(draw(st.permutations(actions or OTHERS[:1])))
        state.apply(commits[-1])
    return commits


@st.composite
def metadata(draw: st.DrawFn, mapped: bool) -> Action:
    """Draw any partition columns; if `mapped`, columns may have physical names."""
    partition_by = draw(st.sampled_from([[], ["p"], ["p", "x.y"], ["x.y"]]))
    action = handmade.metadata({"id": "long", "p": "string", "x.y": "integer"}, partition_by, FOREVER)
    if mapped and draw(st.booleans()):
        fields = json.loads(action["metaData"]["schemaString"])["fields"]
        for number, column in enumerate(fields):
            names = {"id": number, "physicalName": f"col-{number}"}
            column["metadata"] = {f"delta.columnMapping.{key}": value for key, value in names.items()}
        action["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": fields})
        action["metaData"]["configuration"] = FOREVER | {"delta.columnMapping.mode": "name"}
    return action


@st.composite
def changes(draw: st.DrawFn, state: checkpoints.State, path: str, with_vectors: bool) -> list[Action]:
    """Draw one commit's actions for a path: each vector at most once, and at most one of them live after."""
    live = next((file for file in state.live.values() if file["path"] == path), None)
    vector = draw(st.sampled_from(VECTORS)) if with_vectors else None
    new = handmade.add(path, draw(st.integers(0, 2**40)), None, None, vector)
    new["add"]["partitionValues"] = draw(
        st.dictionaries(st.sampled_from(["p", "x.y", "col-1", "col-2"]), VALUES)
    )
    new["add"] |= {"stats": draw(st.sampled_from(STATS)), "tags": draw(st.sampled_from([None, {"k": "v"}]))}
    timestamp = draw(st.sampled_from([None, 0, 1_700_000_000_000]))
    if live is None:
        unknown = handmade.remove(path, timestamp, vector)
        # Delta keeps two tombstones of a file that is removed twice.
        is_new = checkpoints.key(unknown["remove"]) not in state.dead
        return [draw(st.sampled_from([new, new, new, unknown if is_new else new]))]
    old = handmade.remove(path, timestamp, live.get("deletionVector"))
    if checkpoints.key(live) == checkpoints.key(new["add"]):
        return [draw(st.sampled_from([old, new]))]
    return draw(st.sampled_from([[old], [old, new]]))


@st.composite
def losses(draw: st.DrawFn, num_commits: int, complete: list[int]) -> set[int]:
    """Draw the lost commits: none, those up to a checkpoint, or one."""
    kind = draw(st.sampled_from(["none", "head", "head", "gap"]))
    if kind == "gap" and num_commits > 1:
        return {draw(st.integers(0, num_commits - 2))}
    if kind == "head" and complete:
        return set(range(draw(st.sampled_from(complete)) + draw(st.sampled_from([0, 0, 1]))))
    return set()


def read(log: TransactionLog, version: int) -> State | None:
    """Return a version as the kit reads it; None if the kit refuses to."""
    try:
        snapshot = log.snapshot(version)
    except (CorruptLogError, InvalidArgumentError):
        return None
    columns = list(snapshot.metadata.partition_columns)
    files = snapshot.live_files.append_column("records", snapshot.num_records).to_pylist()
    dead = snapshot.tombstones.to_pylist()
    found: dict[deltas_view.Key, Any] = {
        named(file["path"], file["deletion_vector_id"]): file["deletion_timestamp"] for file in dead
    }
    for file in files:
        values = {name: file[f"partition.{name}"] for name in columns}
        key = named(file["path"], file["deletion_vector_id"])
        assert key not in found
        found[key] = file["size_bytes"], values, file["records"]
    assert len(found) == len(files) + len(dead)
    return State(json.dumps(snapshot.metadata.schema), columns, found)


@pytest.mark.parametrize("kind", [None, *get_args(Kind)])
@given(st.data())
@examples(1, divided_by=50)
def test_a_random_log_is_what_delta_says(spark: SparkSession, kind: Kind | None, data: st.DataObject) -> None:
    log = data.draw(logs(kind))
    versions = range(len(log.commits))
    with tempfile.TemporaryDirectory() as folder:
        log.write(Path(folder))
        deltas = deltas_view.states(spark, Path(folder), versions)
        deltas_view.forget(spark)
        kits = {
            version: read(open_table(folder).log, version) for version in data.draw(st.permutations(versions))
        }
        if kits[versions[-1]] is not None:
            assert_lifetimes_agree(open_table(folder).log)
    for version, state in kits.items():
        if version in deltas:
            for key, times in deltas[version].twice.items():
                deltas[version].files[key] = time = state.files[key] if state else None
                assert time in times
            assert state == deltas[version]
        if state is not None:
            # Delta opens neither a table whose latest version it can't read, nor a checkpoint without the
            # commit of its version. The kit does; the replay shows whether the result is right.
            assert version in deltas or version in log.lost or (not deltas and version < versions[-1])
            assert state == log.replayed(version)


def assert_lifetimes_agree(log: TransactionLog) -> None:
    """Assert that the live files of each readable version are those whose lifetimes contain it."""
    lives = log.lifetimes()[1].to_pylist()
    for version in log.readable_range():
        snapshot = log.snapshot(version)
        found = places(snapshot.live["path"], snapshot.store).to_pylist()
        live = zip(found, snapshot.live["deletion_vector_id"].to_pylist(), strict=True)
        assert set(live) == {
            (life["path"], life["deletion_vector_id"])
            for life in lives
            if life["added"] <= version and (life["removed"] is None or version < life["removed"])
        }

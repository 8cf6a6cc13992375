"""Read the commits of a run from the log, where their userMetadata names the run."""

import contextlib
import json
import posixpath
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from compaction_kit.compat import has_jvm
from compaction_kit.execute.failures import SPARK_FAILURES
from compaction_kit.execute.jobs import WHOLE_FILES, own_session
from compaction_kit.handle import Handle
from compaction_kit.log import TransactionLog
from compaction_kit.log.lines import commit_actions, commit_info
from compaction_kit.log.listing import LOG_FOLDER, Kind, LogFile, list_log
from compaction_kit.log.paths import canonical_paths, places
from compaction_kit.plan.plan import BinPlan
from compaction_kit.sql import table_name
from compaction_kit.storage import Store
from compaction_kit.text import format_count, format_list, format_size
from compaction_kit.verify import Fingerprint

# Delta writes this setting's value to the session's commits, and DESCRIBE HISTORY shows it.
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
# These settings make a write idempotent. They are unset, or Delta may skip the run's overwrite as done.
_WRITE_ONCE = dict.fromkeys(f"spark.databricks.delta.write.{name}" for name in ("txnAppId", "txnVersion"))
# Over Spark Connect one run at a time has its settings in the session.
_SETTINGS = threading.RLock()
_TAG = re.compile(
    r"compaction_kit (?P<strategy>[^,;]+), plan (?P<run>\w+)"
    r"(?:, proved (?P<rows>\d+) rows -?[0-9a-f]+ -?[0-9a-f]+ by [\w+]+)?$"
)


@contextlib.contextmanager
def settings(
    spark: SparkSession,
    strategy: str,
    run_id: str,
    confs: Mapping[str, str],
    proof: Fingerprint | None = None,
) -> Iterator[SparkSession]:
    """Yield a copy of a session whose commits name the run, and its proof, in their userMetadata.

    `confs` are other settings of the copy; they don't affect the session's other threads. Over Spark Connect
    the session itself has them within the `with` block, and other runs wait for the end of the block.
    """
    tag = f"compaction_kit {strategy}, plan {run_id}"
    if proof is not None:
        first, second = proof.hash_sums
        tag += f", proved {proof.num_rows} rows {first:x} {second:x} by {'+'.join(proof.readers)}"
    with contextlib.nullcontext() if has_jvm(spark) else _SETTINGS:
        text = "; ".join(filter(None, (spark.conf.get(_USER_METADATA, None), tag)))
        with own_session(spark, {**WHOLE_FILES, **_WRITE_ONCE, **confs, _USER_METADATA: text}) as own:
            yield own


def run_of(user_metadata: str | None) -> str | None:
    """Return the id of the run that made a commit, from its userMetadata; None for other commits."""
    tag = _TAG.search(user_metadata or "")
    return tag["run"] if tag else None


def proved_rows(user_metadata: str | None) -> int | None:
    """Return how many rows a commit removes and adds, if its userMetadata has a proof of them."""
    tag = _TAG.search(user_metadata or "")
    return int(tag["rows"]) if tag and tag["rows"] else None


@dataclass(frozen=True)
class Commit:
    """One commit of a run: file actions and metrics as the log has them, `time` in seconds since 1970.

    `read_version` is the version that its transaction read; `is_proved` says whether the content was compared
    before the commit.
    """

    version: int
    read_version: int
    strategy: str
    is_proved: bool
    time: float
    metrics: dict[str, str]
    adds: list[dict[str, Any]]
    removes: list[dict[str, Any]]


def commits_of(store: Store, run_id: str, since: int) -> list[Commit]:
    """Return the commits of a run after a version, oldest first."""
    found = []
    for file, info, tag, adds, removes in _commits_after(store, since):
        # Over Spark Connect, other writes of the session during the run have the tag too.
        is_other = not removes or any(action["dataChange"] for action in adds + removes)
        is_restore = info.get("operation") == "RESTORE" and tag and tag["strategy"] in ("restore", "undo")
        if tag is None or tag["run"] != run_id or (is_other and not is_restore):
            continue
        version = file.version or 0
        time = info.get("inCommitTimestamp", file.modification_time) / 1000
        metrics = {name: str(value) for name, value in (info.get("operationMetrics") or {}).items()}
        read, is_proved = info.get("readVersion", version - 1), tag["rows"] is not None
        found.append(Commit(version, read, tag["strategy"], is_proved, time, metrics, adds, removes))
    return found


def other_commits(store: Store, run_id: str, plan: BinPlan, since: int) -> str:
    """Say which other writers committed after a version, and how many of the plan's files they removed."""
    planned, removed = set(plan.files["path"].to_pylist()), dict[str, int]()
    for file, info, tag, _, removes in _commits_after(store, since):
        if tag is None or tag["run"] != run_id:
            paths = canonical_paths(pa.array([remove["path"] for remove in removes], pa.string()))
            name = ", ".join(filter(None, (info.get("operation"), f"version {file.version}")))
            removed[name] = len(planned.intersection(paths.to_pylist()))
    removers = [name for name, number in removed.items() if number]
    names = removers or [*removed]
    who, what = "Other writers" if len(names) > 1 else "Another writer", "changed the table"
    if removers:
        what = f"removed {sum(removed.values()):,} of the plan's {format_count(len(planned), 'file')}"
    return f"{who} {what}{f' ({format_list(names)})' if names else ''}"


def _commits_after(store: Store, since: int) -> Iterator[tuple[LogFile, Any, re.Match[str] | None, Any, Any]]:
    """Yield each commit's file, commitInfo, tag of this package, adds and removes."""
    for file in list_log(store):
        if file.kind is Kind.COMMIT and (file.version or 0) > since:
            actions = commit_actions(store, file)
            adds, removes = (
                [action[kind] for action in actions if kind in action] for kind in ("add", "remove")
            )
            info = commit_info(actions)
            yield file, info, _TAG.search(str(info.get("userMetadata"))), adds, removes


def unnamed_files(store: Store, log: TransactionLog, since: float) -> str:
    """Count data files written since a time (seconds) that are in no version: a part of a sentence, or "".

    Spark's tasks leave such files when a commit fails, and Delta doesn't delete them.
    """
    snapshot = log.snapshot()
    paths = pa.chunked_array([*snapshot.live["path"].chunks, *snapshot.removes["path"].chunks], pa.string())
    named, sizes = set(places(paths, store).to_pylist()), list[int]()
    for folder, entries in store.walk():
        entries[:] = [entry for entry in entries if entry.name != LOG_FOLDER]
        files = [entry for entry in entries if entry.is_file and entry.name.endswith(".parquet")]
        new = [entry for entry in files if entry.modified_ns >= since * 1e9]
        sizes += [entry.size_bytes for entry in new if posixpath.join(folder, entry.name) not in named]
    if not sizes:
        return ""
    belong, them = ("belongs", "it") if len(sizes) == 1 else ("belong", "them")
    return (
        f"; {format_count(len(sizes), 'new file')} ({format_size(sum(sizes))}) in its folder {belong} to "
        f"no version, and VACUUM deletes {them}"
    )


def removed_paths(commits: Sequence[Commit]) -> set[str]:
    """Return the paths that commits remove, as the log writes them."""
    return {remove["path"] for commit in commits for remove in commit.removes}


def net_files(commits: Sequence[Commit]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the files that commits removed and added, as add actions, without files in both sets."""

    def key(action: dict[str, Any]) -> tuple[str, str]:
        return action["path"], json.dumps(action.get("deletionVector"), sort_keys=True)

    added = {key(add): add for commit in commits for add in commit.adds}
    removed = {key(remove): remove for commit in commits for remove in commit.removes}
    gone = [as_add(removed[one]) for one in removed if one not in added]
    return gone, [{"add": added[one]} for one in added if one not in removed]


def as_add(remove: dict[str, Any]) -> dict[str, Any]:
    """Return the add action of a removed file (protocol, "Remove File", extendedFileMetadata)."""
    names = ("path", "partitionValues", "size", "deletionVector")
    known = {name: remove[name] for name in names if remove.get(name)}
    return {"add": {"partitionValues": {}, "size": 0, "modificationTime": 0, "dataChange": False, **known}}


def restored(
    handle: Handle,
    strategy: str,
    run_id: str,
    confs: Mapping[str, str],
    run: Callable[[SparkSession], object],
) -> Commit:
    """Let a function commit a RESTORE with `settings`, and return the commit."""
    since = handle.log.segment().version
    try:
        with settings(handle.spark, strategy, run_id, confs) as spark:
            run(spark)
    except (*SPARK_FAILURES, OSError):
        # If only the answer is lost, Delta tries again, and conflicts with its own commit.
        if not commits_of(handle.store, run_id, since):
            raise
    return commits_of(handle.store, run_id, since)[0]


def restore(spark: SparkSession, table: str, version: int) -> None:
    """Restore a version in a new commit; raises PySparkException or Py4JJavaError if Delta refuses."""
    spark.sql(f"RESTORE TABLE {table_name(spark, table)} TO VERSION AS OF {version}").collect()

"""Find the logs of file sinks and file sources, and list the files of a log."""

import re
from pathlib import Path

from compaction_kit.errors import NotASinkLogError, TableNotFoundError
from compaction_kit.folder import walk
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.sinklog.entries import field_names
from compaction_kit.sinklog.policy import BatchFile, Kind
from compaction_kit.storage import LocalStore, Store, local_store, open_store

SINK_FOLDER = "_spark_metadata"
_SOURCES_FOLDER = "sources"
_BATCH = re.compile(r"(0|[1-9][0-9]*)(\.compact)?")
# Spark's batch numbers are below 2^63; leave room for batches to come.
_LARGEST = 2**62
_ADVICE = (
    f"name the output folder of a file sink, its {SINK_FOLDER}, or a folder such as sources/0 in the "
    "checkpoint of a stream that reads files"
)


def list_batches(path: str | Path) -> tuple[Store, Kind, tuple[BatchFile, ...]]:
    """Return the store of a log's folder, the kind of log, and its files, the oldest batch first.

    Raises:
        TableNotFoundError: The path doesn't exist.
        NotASinkLogError: The path has no such log, or the log has no batch yet.
    """
    store = _log_store(local_store(path, "A sink log"))
    files = _list_files(store)
    return store, _kind_of(store, files), files


def find_sink_logs(root: str | Path) -> list[str]:
    """Find the logs of file sinks and file sources in a folder; see `sink_log` for an example.

    Hidden folders, and folders more than six levels down, are skipped. Inside of a table or a sink's output
    only folders that begin with "_" are searched, as streams often keep their checkpoints there.

    Args:
        root: A folder on a local disk; if it doesn't exist, there are no logs.

    Returns:
        Paths for `sink_log`, sorted, each beginning with `root`: a sink's output folder, or the folder of one
        source in a checkpoint, such as `checkpoint/sources/0`.
    """
    found = []
    for folder, subfolders in walk(root, hidden=(".", LOG_FOLDER, SINK_FOLDER)):
        if SINK_FOLDER in subfolders:
            found.append(folder)
        if SINK_FOLDER in subfolders or LOG_FOLDER in subfolders:
            subfolders[:] = [name for name in subfolders if name.startswith("_")]
        if _SOURCES_FOLDER in subfolders:
            sources = f"{folder}/{_SOURCES_FOLDER}"
            names = [entry.name for entry in open_store(sources).entries()]
            found += [
                f"{sources}/{name}" for name in names if _is_file_source(open_store(f"{sources}/{name}"))
            ]
            subfolders.clear()
    return sorted(found)


def _log_store(store: LocalStore) -> LocalStore:
    """Return the folder of the log in an output folder or a checkpoint; else the folder itself."""
    if store.status() is None:
        raise TableNotFoundError(f"No sink log at {store.root}: the path does not exist; check the spelling.")
    if not store.is_folder():
        raise NotASinkLogError(f"{store.root} is a file: {_ADVICE}.")
    folders = (SINK_FOLDER, f"{_SOURCES_FOLDER}/0")
    return next((store.below(folder) for folder in folders if store.is_folder(folder)), store)


def _list_files(store: Store) -> tuple[BatchFile, ...]:
    """List the files of a log, the oldest batch first; skip other files in the folder."""
    found = []
    for entry in store.entries():
        match = _BATCH.fullmatch(entry.name)
        if entry.is_file and match and int(match[1]) <= _LARGEST:
            found.append(BatchFile(int(match[1]), bool(match[2]), entry.size_bytes, entry.modification_time))
    return tuple(sorted(found, key=lambda file: (file.batch, file.is_compaction)))


def _kind_of(store: Store, files: tuple[BatchFile, ...]) -> Kind:
    """Return the kind of a log: by its folder's name, or by an entry, as checkpoints have other logs too."""
    folder = Path(store.root)
    if folder.name == SINK_FOLDER:
        if files:
            return Kind.SINK
        raise NotASinkLogError(
            f"{folder} is empty: the stream has not committed a batch yet, so Spark reads no row there."
        )
    all_names = (field_names(store, file.name) for file in reversed(files))
    names = next((names for names in all_names if names is not None), None)
    if names is None:
        if files and folder.parent.name == _SOURCES_FOLDER:
            return Kind.SOURCE
        raise NotASinkLogError(f"{folder} holds no log of a file sink or a file source: {_ADVICE}.")
    if names >= {"path", "batchId"}:
        return Kind.SOURCE
    if names >= {"path", "action"}:
        return Kind.SINK
    raise NotASinkLogError(f"{folder} has another log of a stream, whose entries aren't files: {_ADVICE}.")


def _is_file_source(store: Store) -> bool:
    try:
        return store.is_folder() and _kind_of(store, _list_files(store)) == Kind.SOURCE
    except NotASinkLogError:
        return False

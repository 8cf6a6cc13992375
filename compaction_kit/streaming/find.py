"""Where in a folder the logs of file sinks and file sources are."""

from pathlib import Path

from compaction_kit.errors import NotASinkLogError
from compaction_kit.folder import walk
from compaction_kit.log.listing import LOG_FOLDER
from compaction_kit.streaming.names import SINK_FOLDER, SOURCES_FOLDER, Kind, kind_of, list_files


def find_sink_logs(root: str | Path) -> list[str]:
    """The logs of file sinks and of streams' file sources in a folder, as `sink_log` takes them.

    Hidden folders are passed over, and so is what is more than six levels down. Inside of a table
    or a sink's output only folders that begin with "_" are looked into, for that is where streams
    are told to keep their checkpoints.

    Args:
        root: A folder on a local disk; one that doesn't exist holds no logs.

    Returns:
        Paths, each beginning with `root`, sorted: a sink's output folder, or the folder of one
        source in a checkpoint, such as `checkpoint/sources/0`.
    """
    found = []
    for folder, subfolders in walk(root, hidden=(".", LOG_FOLDER, SINK_FOLDER)):
        if SINK_FOLDER in subfolders:
            found.append(folder)
        if SINK_FOLDER in subfolders or LOG_FOLDER in subfolders:
            subfolders[:] = [name for name in subfolders if name.startswith("_")]
        if SOURCES_FOLDER in subfolders:
            sources = Path(folder, SOURCES_FOLDER)
            found += [str(source) for source in sources.iterdir() if _is_file_source(source)]
            subfolders.clear()
    return sorted(found)


def _is_file_source(folder: Path) -> bool:
    try:
        return folder.is_dir() and kind_of(folder, list_files(folder)) == Kind.SOURCE
    except NotASinkLogError:
        return False

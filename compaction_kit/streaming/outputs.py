"""What a sink's output folder holds, beside what its log lists."""

from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import CorruptLogError, UnsupportedTableError
from compaction_kit.log.paths import decode_paths

_FORMAT = r"\.(?P<format>parquet|json|csv)(?:\.\w+)?$"


def relative_paths(uris: pa.Array | pa.ChunkedArray, output: Path) -> pa.Array:
    """Paths relative to the output, as on disk; those of files elsewhere stay absolute.

    Args:
        uris: Paths as a log or Spark writes them.
        output: The output folder, absolute and without links.
    """
    paths = pc.replace_substring_regex(decode_paths(uris), "^file:(?://)?", "")
    prefix = f"{output}/"
    if pc.all(pc.starts_with(paths, prefix)).as_py():
        return pc.utf8_slice_codeunits(paths, len(prefix))
    # The stream may have been given another name of the same folder.
    resolved = (str(Path(path).resolve()) for path in paths.to_pylist())
    return pa.array([path.removeprefix(prefix) for path in resolved], pa.string())


def format_of(paths: pa.ChunkedArray) -> str:
    """The one format of some files, by their names.

    Raises:
        UnsupportedTableError: They have several, or one that isn't known.
    """
    found = pc.unique(pc.struct_field(pc.extract_regex(paths, _FORMAT), "format")).to_pylist()
    if len(found) > 1 or found[0] is None:
        kinds = ", ".join(str(one) for one in found if one) or Path(paths[0].as_py()).name
        raise UnsupportedTableError(
            f"The output's files are {kinds}, and only Parquet, JSON or CSV are moved, one of them at a time."
        )
    return str(found[0])


def partition_folders(path: str) -> list[str]:
    """The columns that a file's folders name: "a=1/b=2/part-0.json" has a and b."""
    return [unquote(folder.partition("=")[0]) for folder in path.split("/")[:-1] if "=" in folder]


def check_there(files: pa.Table, on_disk: pa.Table) -> None:
    """Nothing, if every file that a log lists is there.

    Args:
        files: Those that it lists: path.
        on_disk: Those that are there: path.

    Raises:
        CorruptLogError: One isn't.
    """
    there = pc.is_in(files["path"], value_set=on_disk["path"].combine_chunks())
    gone = files["path"].filter(pc.invert(there))
    if not len(gone):
        return
    first = gone[0].as_py()
    advice = (
        "the log has absolute paths, so that an output can't be read from another folder than it was written "
        "to: move it back"
        if first.startswith("/")
        else "restore it from a backup"
    )
    verb = "is" if len(gone) == 1 else "are"
    raise CorruptLogError(
        f"Of the files that the log lists {len(gone):,} {verb} not in the output, such as {first}: {advice}."
    )

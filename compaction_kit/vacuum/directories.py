"""The folders that VACUUM FULL lists beside the files."""

import pyarrow as pa
import pyarrow.compute as pc

DIRECTORIES = pa.schema([("path", pa.string()), ("is_empty", pa.bool_())])


def listed_directories(entries: dict[str, int], old: pa.Array, named: pa.Array) -> pa.Table:
    """The folders that VACUUM takes for empty, and whether they are.

    A folder counts as empty for it if no file below is older than the retention and none is named by
    the log (VacuumCommand.gc, steps 3 to 6). It deletes no folder that holds anything, and so
    leaves those that it empties itself to the next VACUUM.

    Args:
        entries: How many entries each folder has; see `Folder.directories`.
        old: The paths of the files older than the retention.
        named: The paths of the live data files, and of those with a tombstone that is younger.

    Returns:
        path, is_empty (it holds nothing but folders of which that is true); by path.
    """
    if not entries:
        return DIRECTORIES.empty_table()
    occupied = _above(old) | _above(named)
    listed = sorted(path for path in entries if path not in occupied)
    left = dict(entries)
    # Inner ones first: each that is empty is one entry less for the folder that it is in.
    for path in sorted(listed, key=lambda path: -path.count("/")):
        outer = path.rpartition("/")[0]
        if not left[path] and outer in left:
            left[outer] -= 1
    # Hadoop can't name one that begins with a colon's scheme; see `sorting.sort_out`.
    is_empty = [not left[path] and ":" not in path.partition("/")[0] for path in listed]
    return pa.table({"path": listed, "is_empty": is_empty}, DIRECTORIES)


def _above(paths: pa.Array) -> set[str]:
    """Every folder that some files are in, at any depth."""
    inner = paths.filter(pc.match_substring(paths, "/"))
    found: set[str] = set()
    for path in pc.unique(pc.replace_substring_regex(inner, "/[^/]*$", "")).to_pylist():
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return found

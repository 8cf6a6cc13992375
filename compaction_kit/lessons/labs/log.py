"""Lesson 02: the live files of a version, and the files of the log that a reader of it needs."""

from compaction_kit.lessons.lab import Finding, Lab, Steps, run
from compaction_kit.table import Table
from compaction_kit.text import format_count, format_size


def log(table: Table, version: int | None = None) -> Lab:
    """Show which files a version of a table has, and what a reader has to read to know that.

    Args:
        table: A table, whose versions since the oldest one that can be read are shown.
        version: The version that it begins with; None for the latest.

    Raises:
        InvalidArgumentError: The version can't be read.
    """
    versions = table.history()["version"].to_pylist()
    chosen = table.version if version is None else version

    def finding(version: int) -> Finding:
        segment = table.log.segment(version)
        read = [f"the checkpoint of version {file.version}" for file in segment.checkpoint[:1]]
        if segment.commits:
            begin, end = segment.commits[0].version, segment.commits[-1].version
            read.append(f"commit {end}" if begin == end else f"commits {begin} to {end}")
        num_files = len(segment.checkpoint + segment.commits)
        sentence = (
            f"A reader of version {version} reads {format_count(num_files, 'file')} of the log, "
            f"{format_size(segment.size_bytes)}: {' and '.join(read)}. Without checkpoints it would read "
            f"{format_count(version + 1, 'commit')}."
        )
        code = f"""\
from compaction_kit import plots

segment = table.log.segment({version})
needed = {{file.name for file in segment.checkpoint + segment.commits}}
_, lives = table.log.lifetimes()
plots.reading(lives, table.log.listing(), needed, {version})"""
        return Finding(sentence, run(code, table=table), code)

    return Lab(finding, version=Steps("Version", versions, chosen))

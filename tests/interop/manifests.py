"""Symlink manifests written as Delta's GENERATE writes them, of any version."""

from pathlib import Path
from urllib.parse import unquote

from compaction_kit import open_table
from compaction_kit.interop.manifest import FOLDER, partition_folders


def write_lines(table: Path, partition: str, lines: list[str]) -> None:
    """Write one partition's manifest."""
    file = table / FOLDER / partition / "manifest"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines))


def write_manifest(table: Path, version: int | None = None, partitions: set[str] | None = None) -> None:
    """Write the manifests of a version's partitions; `partitions` limits them to some."""
    files = open_table(table).files(version)
    paths = list(map(unquote, files.to_arrow()["path"].to_pylist()))
    folders = partition_folders(files)
    for folder in set(folders) if partitions is None else partitions:
        mine = [f"file:{table / path}" for path, other in zip(paths, folders, strict=True) if other == folder]
        write_lines(table, folder, mine)


def read(table: Path) -> dict[str, set[str]]:
    """Return the lines of each manifest, by its partition's folder."""
    root = table / FOLDER
    return {
        file.parent.relative_to(root).as_posix().removeprefix("."): set(file.read_text().splitlines())
        for file in root.rglob("manifest")
    }

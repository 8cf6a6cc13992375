"""Imports go one way, files are reached by one module, and CONTRIBUTING.md shows the house as it is."""

import ast
import importlib.util
import re
from graphlib import TopologicalSorter
from types import ModuleType

import pytest

from tests.test_project import ROOT

# What reaches files without the store: the store, what runs on executors, and what has files of its own.
REACH_FILES = (
    "storage/",
    "arrow/worker/",
    "arrow/concat/",
    "arrow/copied.py",
    "session.py",
    "compat.py",
    "java.py",
    "widgets/tables.py",
    "report.py",
    "predict_reads.py",
    "datasets.py",
    "execute/delta.py",
    "widgets/parts.py",
    "widgets/workbench.py",
)
OF_FILES = {
    *(
        "open",
        "exists",
        "is_dir",
        "iterdir",
        "glob",
        "rglob",
        "stat",
        "lstat",
        "resolve",
        "scandir",
        "listdir",
    ),
    *("read_bytes", "read_text", "write_bytes", "write_text", "unlink", "rmdir", "mkdir", "rename", "touch"),
    *("memory_map", "OSFile", "read_table", "isfile", "isdir", "islink", "realpath", "getsize", "rmtree"),
}
# The core is imported without PySpark and figures; these need one of them when they are called.
HIDDEN = [
    "compaction_kit.execute.result: from compaction_kit import plots",
    "compaction_kit.execute.result: from compaction_kit import plots",
    "compaction_kit.execute.result: from compaction_kit.query import Query",
    "compaction_kit.execute.result: from compaction_kit.query import with_table",
    "compaction_kit.execute.result: from compaction_kit.reads import ReadComparison",
    "compaction_kit.execute.result: from compaction_kit.reads import measure_reads",
    "compaction_kit.files: from compaction_kit import plots",
    "compaction_kit.plan.compare: from compaction_kit import plots",
    "compaction_kit.plan.thresholds: from compaction_kit.compat import groups_by_type",
    "compaction_kit.storage: from compaction_kit.storage.filesystems import open_filesystem",
]


@pytest.fixture(scope="module")
def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", ROOT / "docs/house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def imports(house: ModuleType) -> dict[str, set[str]]:
    found: dict[str, set[str]] = house.imports()
    return found


def test_no_module_imports_itself_by_way_of_others(imports: dict[str, set[str]]) -> None:
    # It raises a CycleError that names them.
    assert len(list(TopologicalSorter(imports).static_order())) > 50


def test_no_room_imports_itself_by_way_of_others(house: ModuleType, imports: dict[str, set[str]]) -> None:
    assert next(iter(TopologicalSorter(house.rooms(imports)).static_order())) == "base"


def test_imports_stand_at_the_top_of_modules(house: ModuleType) -> None:
    # The package's own names are imported when they are first used.
    assert [line for line in house.hidden_imports() if not line.startswith("compaction_kit: ")] == HIDDEN


def test_files_of_tables_are_reached_by_the_store_alone() -> None:
    package = ROOT / "compaction_kit"
    found = []
    for file in sorted(package.rglob("*.py")):
        name = file.relative_to(package).as_posix()
        if name.startswith(REACH_FILES):
            continue
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call):
                owner, dot, act = ast.unparse(call.func).rpartition(".")
                if act in OF_FILES and (dot or act == "open") and not owner.endswith("store"):
                    found.append(f"{name}:{call.lineno}: {owner}.{act}")
    assert found == []


def test_the_picture_is_of_the_house(house: ModuleType) -> None:
    assert house.drawing() in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_tests_patch_nothing_that_is_private_and_compare_no_whole_sentence() -> None:
    package = [path.read_text(encoding="utf-8") for path in (ROOT / "compaction_kit").rglob("*.py")]
    limits = re.findall(r"^(_[A-Z]\w+)(?:, \w+)* = ", "\n".join(package), re.MULTILINE)
    patched = rf'setattr\(\s*\w+,\s*"_[^_]|[a-z]\w*\._[A-Z]\w+ = |"(?:{"|".join(limits)})"'
    wrong = re.compile(rf"{patched}|str\(\w+\.value\) == ")
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    found = [
        (path.relative_to(ROOT), match[0]) for path, text in texts.items() for match in wrong.finditer(text)
    ]
    assert found == []

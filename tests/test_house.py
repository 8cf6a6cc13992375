"""Rooms stay within their budgets, files are reached by the store alone, tests use public names."""

import ast
import re
from collections import Counter

from tests.test_project import ROOT, text_of

PACKAGE = ROOT / "compaction_kit"
# Modules that reach files without the store: the store, code for executors, code with files of its own.
REACH_FILES = (
    *("storage/", "arrow/worker/", "arrow/concat/", "arrow/copied.py", "session.py", "cost.py", "compat.py"),
    *("widgets/tables.py", "widgets/parts.py", "widgets/workbench.py", "execute/delta.py", "report.py"),
    *("predict_reads.py", "datasets.py"),
)
OF_FILES = {
    *("open", "exists", "is_dir", "iterdir", "glob", "rglob", "stat", "lstat", "resolve", "scandir"),
    *("read_bytes", "read_text", "write_bytes", "write_text", "unlink", "rmdir", "mkdir", "rename", "touch"),
    *("listdir", "memory_map", "OSFile", "read_table", "isfile", "isdir", "islink", "realpath"),
    *("getsize", "rmtree"),
}


def test_no_room_is_larger_than_its_budget() -> None:
    """CONTRIBUTING.md has the budgets: the modules of a room, and the lines that they may have."""
    table = re.findall(r"^\| (`.*`|all) \| ([\d,]+) \|$", text_of("CONTRIBUTING.md"), re.MULTILINE)
    budgets = {names: int(lines.replace(",", "")) for names, lines in table}
    lines = {
        file.relative_to(PACKAGE).as_posix(): len(file.read_text(encoding="utf-8").splitlines())
        for file in PACKAGE.rglob("*.py")
    }
    rooms = {names: re.findall(r"`([\w./]+)`", names) for names in budgets if names != "all"}
    found = {
        names: sum(count for file, count in lines.items() if file.startswith(tuple(of)))
        for names, of in rooms.items()
    }
    assert sum(found.values()) == sum(lines.values()), "a module is in no room, or in two"
    found["all"] = sum(lines.values())
    assert {names: count for names, count in found.items() if count > budgets[names]} == {}


def test_files_of_tables_are_reached_by_the_store_alone() -> None:
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        name = file.relative_to(PACKAGE).as_posix()
        if name.startswith(REACH_FILES):
            continue
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call):
                owner, dot, act = ast.unparse(call.func).rpartition(".")
                if act in OF_FILES and (dot or act == "open") and not owner.endswith("store"):
                    found.append(f"{name}:{call.lineno}: {owner}.{act}")
    assert found == []


def test_text_becomes_html_by_escaping_it_or_in_a_few_places() -> None:
    """Only figures, styles and earlier drawings become `Html` without `text.element`; names never do."""
    found = Counter(
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        for _ in re.findall(r"(?<!class )\bHtml\(", file.read_text(encoding="utf-8"))
    )
    places = {"text.py": 3, "plots/style.py": 1, "report.py": 1, "widgets/page.py": 2, "widgets/parts.py": 1}
    assert found == places


def test_tests_patch_nothing_that_is_private_and_compare_no_whole_sentence() -> None:
    package = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    limits = re.findall(r"^(_[A-Z]\w+)(?:, \w+)* = ", "\n".join(package), re.MULTILINE)
    patched = rf'setattr\(\s*\w+,\s*"_[^_]|[a-z]\w*\._[A-Z]\w+ = |"(?:{"|".join(limits)})"'
    wrong = re.compile(rf"{patched}|str\(\w+\.value\) == ")
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    found = [
        (path.relative_to(ROOT), match[0]) for path, text in texts.items() for match in wrong.finditer(text)
    ]
    assert found == []

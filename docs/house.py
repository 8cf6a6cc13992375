"""Draw the package's rooms and what they import, as CONTRIBUTING.md has it: python docs/house.py."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = "compaction_kit"
ROOT = Path(__file__).parents[1]
# Modules that stand alone in the package's folder, by the room that they are shown in.
_ROOMS = {
    "base": (
        "active",
        "compat",
        "errors",
        "histogram",
        "text",
        "records",
        "sql",
        "session",
        "java",
        "times",
        "storage",
        "folder",
    ),
    "files": ("files", "skipping", "predicate"),
    "handle": ("handle", "retention"),
    "verify": ("verify", "query", "reads"),
    "table": ("table", "compaction", "predict_reads", "verdict"),
}
Graph = dict[str, set[str]]


def imports() -> Graph:
    """What each module imports of the package, wherever in the module it does: under `if`, in functions."""
    files = {_name(path): path for path in (ROOT / PACKAGE).rglob("*.py")}
    graph: Graph = {}
    for name, path in files.items():
        found = set(_imported(ast.parse(path.read_text(encoding="utf-8")), files))
        graph[name] = found - {name}
    return graph


def hidden_imports() -> list[str]:
    """The modules and lines where the package is imported within a function, or for types alone."""
    found = []
    for path in (ROOT / PACKAGE).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top = {id(node) for node in tree.body}
        nodes = (node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)))
        ours = (node for node in nodes if id(node) not in top and PACKAGE in ast.unparse(node))
        found += [f"{_name(path)}: {ast.unparse(node)}" for node in ours]
    return sorted(found)


def rooms(graph: Graph) -> Graph:
    """Which room imports from which."""
    found: Graph = {}
    for module, imported in graph.items():
        here = found.setdefault(_room(module), set())
        here |= {_room(one) for one in imported} - {_room(module)}
    return found


def drawing() -> str:
    """The rooms as a Mermaid flowchart; an arrow that others imply is left out."""
    graph = rooms(imports())
    lines = [f"    {room} --> {other}" for room in graph for other in sorted(_direct(graph, room))]
    return "\n".join(["```mermaid", "flowchart TD", *sorted(lines), "```"])


def _direct(graph: Mapping[str, set[str]], room: str) -> set[str]:
    return {one for one in graph[room] if not any(one in _reach(graph, via) for via in graph[room] - {one})}


def _reach(graph: Mapping[str, set[str]], room: str) -> set[str]:
    found: set[str] = set()
    ahead = [room]
    while ahead:
        new = graph[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def _name(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def _room(module: str) -> str:
    name = module.partition(".")[2].partition(".")[0] or PACKAGE
    return next((room for room, modules in _ROOMS.items() if name in modules), name)


def _imported(tree: ast.Module, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in known)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            inner = [f"{node.module}.{one.name}" for one in node.names]
            # What a package's own module offers is imported from that module.
            yield from (one if one in known else str(node.module) for one in inner)


if __name__ == "__main__":
    print(drawing())

"""Aliases for renamed modules: importing an old name warns and gives the new module's content."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_PACKAGE = __name__.rpartition(".")[0]
_NOW = {
    "sizes": "text",
    "histogram": "plots.sizes",
    "durations": "text",
    "markup": "text",
    "bounds": "skipping",
    "overlap": "skipping",
    "settings": "plan.thresholds",
    "sample": "plan.predict",
    "plan.estimate": "plan.predict",
    "plan.outcome": "plan.predict",
    **dict.fromkeys(("concurrency", "concurrency.story"), "lessons.races"),
    "concurrency.hold": "lessons.writers",
    "streams": "lessons.streams",
    "playground": "lessons",
    "streaming": "sinklog",
    "streaming.find": "sinklog.state",
    "streaming.growth": "sinklog.projection",
    "streaming.memory": "sinklog.projection",
    "streaming.names": "sinklog.policy",
    "streaming.outputs": "sinklog.move",
    "streaming.record": "sinklog.log",
    "streaming.retain": "sinklog.retention",
    "streaming.words": "sinklog.log",
    "widgets.runs": "widgets.job",
}


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # As a package, because old names may be below it.
        return ModuleSpec(fullname, self, is_package=True) if _now(fullname) else None

    def exec_module(self, module: ModuleType) -> None:
        now = f"{_PACKAGE}.{_now(module.__name__)}"
        warnings.warn(f"{module.__name__} is {now} now: import that.", FutureWarning, stacklevel=2)
        vars(module).update({k: v for k, v in vars(importlib.import_module(now)).items() if k[:2] != "__"})


def _now(fullname: str) -> str | None:
    """Return the new name in this package, from the entry of the module or of the package it was in."""
    package, _, name = fullname.partition(".")
    if package != _PACKAGE:
        return None
    outer, _, inner = name.rpartition(".")
    return _NOW.get(name) or (f"{_NOW[outer]}.{inner}" if outer in _NOW else None)


def find_renamed_modules() -> None:
    """Make Python find this package's modules by their old names too."""
    # First in the path: a folder with the old name may be left, with only caches in it.
    sys.meta_path.insert(0, _Finder())

"""Modules by the names that they had: imported so, they warn and are what they are now."""

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
}


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # As a package: others may be below it.
        return ModuleSpec(fullname, self, is_package=True) if _now(fullname) else None

    def exec_module(self, module: ModuleType) -> None:
        now = f"{_PACKAGE}.{_now(module.__name__)}"
        warnings.warn(f"{module.__name__} is {now} now: import that.", FutureWarning, stacklevel=2)
        vars(module).update({k: v for k, v in vars(importlib.import_module(now)).items() if k[:2] != "__"})


def _now(fullname: str) -> str | None:
    """The new name below this package, by the module's own entry or by that of the package it was in."""
    package, _, name = fullname.partition(".")
    if package != _PACKAGE:
        return None
    outer, _, inner = name.rpartition(".")
    return _NOW.get(name) or (f"{_NOW[outer]}.{inner}" if outer in _NOW else None)


def find_renamed_modules() -> None:
    """Have Python find modules of this package by the names that they had too."""
    # First, for a folder of the old name may be left, with nothing in it but caches.
    sys.meta_path.insert(0, _Finder())

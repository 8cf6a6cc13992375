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
    "sample": "plan.estimate",
    **dict.fromkeys(("concurrency", "concurrency.story"), "lessons.races"),
    "concurrency.hold": "lessons.writers",
    "streams": "lessons.streams",
    "playground": "lessons",
}


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != _PACKAGE or name not in _NOW:
            return None
        # A package, for some of these had submodules.
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        now = f"{_PACKAGE}.{_NOW[module.__name__.partition('.')[2]]}"
        warnings.warn(f"{module.__name__} is {now} now: import that.", FutureWarning, stacklevel=2)
        vars(module).update({k: v for k, v in vars(importlib.import_module(now)).items() if k[:2] != "__"})


def find_renamed_modules() -> None:
    """Have Python find modules of this package by the names that they had too."""
    # First, for a folder of the old name may be left, with nothing in it but caches.
    sys.meta_path.insert(0, _Finder())

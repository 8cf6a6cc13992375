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
}


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        return ModuleSpec(fullname, self) if package == _PACKAGE and name in _NOW else None

    def exec_module(self, module: ModuleType) -> None:
        now = f"{_PACKAGE}.{_NOW[module.__name__.partition('.')[2]]}"
        warnings.warn(f"{module.__name__} is {now} now: import that.", FutureWarning, stacklevel=2)
        vars(module).update({k: v for k, v in vars(importlib.import_module(now)).items() if k[:2] != "__"})


def find_renamed_modules() -> None:
    """Have Python find modules of this package by the names that they had too."""
    sys.meta_path.append(_Finder())

"""Call everything that reads in a process of its own, to find crashes, hangs and excessive use of memory."""

import resource
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from multiprocessing import TimeoutError, get_context
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

from compaction_kit import errors, open_table, sink_log, survey
from compaction_kit.interop import check_manifest

_SECONDS = 60
_BYTES = 1 << 30
Calls = dict[str, Callable[[], Any]]
Live = list[tuple[str, int]]


class Reader:
    """Reads tables and logs in another process, which is replaced if it dies or hangs."""

    def __init__(self) -> None:
        self._pool: Pool | None = None

    def wrong(self, kind: str, path: Path) -> tuple[list[str], Live | None]:
        """Return the errors that are not one sentence of the kit, and a table's live files."""
        self._pool = self._pool or get_context("spawn").Pool(1, _bound)
        try:
            return self._pool.apply_async(_read, (kind, path)).get(_SECONDS)
        except TimeoutError:
            self.close()
            return [f"no answer within {_SECONDS} s, or the process died"], None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None


def _bound() -> None:
    """Limit how much more memory the process may allocate from here on."""
    warnings.simplefilter("ignore")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + _BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _read(kind: str, path: Path) -> tuple[list[str], Live | None]:
    wrong: list[str] = []
    live = None
    for name, call in _OF[kind](path).items():
        try:
            found = call()
            live = found if name == "live" else live
        except errors.CompactionKitError as error:
            message = str(error)
            if "\n" in message or not message.endswith(".") or len(message) > 2_000:
                wrong.append(f"{name}: {message!r}")
        except Exception:
            wrong.append(f"{name}: {traceback.format_exc()}")
    return wrong, live


def _of_table(path: Path) -> Calls:
    # Open the table again for each call, so that no call profits from what another one has read.
    table = partial(open_table, path)

    def earliest() -> int:
        return table().versions()["version"][0].as_py()

    return {
        "live": lambda: _live(path),
        "files": lambda: table().files().to_arrow(),
        "stats": lambda: repr(table().files().stats()),
        "overlap": lambda: table().files().overlap("id"),
        "listing": lambda: table().log.listing(),
        "commits": lambda: table().log.commits(),
        "actions": lambda: table().log.actions(table().version),
        "checkpoint": lambda: table().log.actions(2, checkpoint=True),
        "last_operation": lambda: table().log.last_operation("WRITE"),
        "history": lambda: table().history(),
        "versions": lambda: table().versions(),
        "at": lambda: table().at(timestamp="2030-01-01"),
        "diff": lambda: repr(table().diff(earliest(), table().version)),
        "restore": lambda: repr(table().plan_restore(earliest())),
        "storage": lambda: table().storage(),
        "log_expiry": lambda: table().log_expiry(),
        "vacuum": lambda: repr(table().plan_vacuum()),
        "compaction": lambda: repr(table().plan_compaction()),
        "explain": lambda: table().plan_compaction().explain(),
        "purge": lambda: repr(table().plan_purge()),
        "auto_compaction": lambda: repr(table().auto_compaction()),
        "forecast": lambda: repr(table().forecast()),
        "manifest": lambda: repr(check_manifest(table())),
        "survey": lambda: _survey(path),
    }


def _of_sink_log(path: Path) -> Calls:
    return {
        "log": lambda: repr(sink_log(path)),
        "files": lambda: sink_log(path).files,
        "project": lambda: sink_log(path).project(10),
        "explain": lambda: sink_log(path).explain(),
        "retention": lambda: sink_log(path).project(100, "7 days"),
    }


def _live(path: Path) -> Live:
    columns = open_table(path).files().to_arrow().select(["path", "size_bytes"]).to_pydict()
    return sorted(zip(*columns.values(), strict=True))


def _survey(path: Path) -> None:
    """Check that a survey's errors are sentences too."""
    for error in survey(path).rows["error"].drop_null().to_pylist():
        if "Error: " in error.split()[0] + " ":
            raise AssertionError(error)


_OF: dict[str, Callable[[Path], Calls]] = {"table": _of_table, "sink log": _of_sink_log}

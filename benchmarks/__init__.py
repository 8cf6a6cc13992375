"""The command line that all benchmarks share, and measuring in a new process."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def parser(doc: str | None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)


def timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    value = work()
    return time.perf_counter() - start, value


def measure_alone(name: str, *arguments: object) -> Any:
    """Run a benchmark with --measure in a new process, without caches, and return the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--measure", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{arguments[0]}: {done.stderr[-2_000:]}")
    return json.loads(done.stdout.splitlines()[-1])

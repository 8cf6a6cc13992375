"""Notebooks that pytest runs share one JVM a process: starting it takes longer than most of them."""

import os
import subprocess
import sys
from collections.abc import Generator
from typing import Any

import pytest
from nbval.plugin import IPyNbCell

# Starts a JVM as the kit does, tells where it is, and stops what the last notebook left running.
_HOLDER = """
import sys
from compaction_kit import get_spark
spark = get_spark()
gateway = spark.sparkContext._gateway
spark.stop()
while True:
    print(gateway.gateway_parameters.port, gateway.gateway_parameters.auth_token, flush=True)
    if not sys.stdin.readline():
        break
    if gateway.jvm.org.apache.spark.SparkEnv.get() is not None:
        gateway.jvm.org.apache.spark.SparkContext.getOrCreate().stop()
"""


class SharedJvm:
    """A JVM that the kernels of notebooks find by their environment."""

    def __init__(self) -> None:
        self.holder: subprocess.Popen[str] | None = None
        self.address: list[str] = []

    def environment(self) -> dict[str, str]:
        """Where PySpark finds the JVM; it is started if need be."""
        if self.holder is None:
            command = [sys.executable, "-c", _HOLDER]
            self.holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._read()
        port, secret = self.address
        return {"PYSPARK_GATEWAY_PORT": port, "PYSPARK_GATEWAY_SECRET": secret}

    def clear(self) -> None:
        """Stop what runs in it."""
        if self.holder is not None and self.holder.stdin is not None:
            print(file=self.holder.stdin, flush=True)
            self._read()

    def _read(self) -> None:
        assert self.holder is not None
        assert self.holder.stdout is not None
        self.address = self.holder.stdout.readline().split()


_JVM = SharedJvm()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """Kernels start with a notebook's first cell, and end with its last."""
    if not isinstance(item, IPyNbCell):
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _JVM.environment().items():
            patch.setitem(os.environ, name, value)
        result = yield
    if nextitem is None or nextitem.parent is not item.parent:
        _JVM.clear()
    return result

"""Notebooks that pytest runs share the JVM of its process: starting one takes longer than most of them."""

import os
from collections.abc import Generator
from typing import Any

import pytest
from nbval.plugin import IPyNbCell
from py4j.java_gateway import JavaGateway
from pyspark import SparkContext

from compaction_kit import get_spark


def _free_jvm() -> JavaGateway | None:
    """This process's JVM, started if need be; None while this process has a session in it."""
    if SparkContext._active_spark_context is not None:
        return None
    if SparkContext._gateway is None:
        get_spark().stop()
    return SparkContext._gateway


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """Kernels start with a notebook's first cell, find the JVM by their environment, and end with the last."""
    gateway = _free_jvm() if isinstance(item, IPyNbCell) else None
    if gateway is None:
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "PYSPARK_GATEWAY_PORT", str(gateway.gateway_parameters.port))
        patch.setitem(os.environ, "PYSPARK_GATEWAY_SECRET", gateway.gateway_parameters.auth_token)
        result = yield
    if nextitem is None or nextitem.parent is not item.parent:
        jvm = gateway.jvm
        if jvm.org.apache.spark.SparkEnv.get() is not None:
            jvm.org.apache.spark.SparkContext.getOrCreate().stop()
    return result

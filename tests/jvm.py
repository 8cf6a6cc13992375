"""Lend the JVM of pytest's own process to kernels, because starting one takes longer than most notebooks."""

import contextlib
import time
from collections.abc import Iterator, Mapping

from py4j.java_gateway import JavaGateway
from pyspark import SparkContext
from pyspark.sql import SparkSession

from compaction_kit import get_spark
from tests.releases import SPARK

# How long a session may take to start or to stop.
_SECONDS = 60


def own_session() -> SparkSession:
    """Return the session of the tests: on all cores, and with S3 if Spark's version of Hadoop supports it."""
    return get_spark({"spark.master": "local[*]"}, s3=SPARK >= (4, 0))


def free_jvm() -> JavaGateway | None:
    """This process's JVM, started if need be; None while this process has a session in it."""
    if SparkContext._active_spark_context is not None:
        return None
    if SparkContext._gateway is None:
        # Start the JVM with everything that any session of the tests needs, because its class path is fixed.
        own_session().stop()
    return SparkContext._gateway


def address(gateway: JavaGateway) -> dict[str, str]:
    """Return the environment variables with which PySpark uses a JVM."""
    known = gateway.gateway_parameters
    return {"PYSPARK_GATEWAY_PORT": str(known.port), "PYSPARK_GATEWAY_SECRET": known.auth_token}


@contextlib.contextmanager
def defaults(gateway: JavaGateway, confs: Mapping[str, str]) -> Iterator[None]:
    """Set defaults for sessions that start in a JVM, as spark-defaults.conf does."""
    system = gateway.jvm.java.lang.System
    for key, value in confs.items():
        system.setProperty(key, value)
    try:
        yield
    finally:
        for key in confs:
            system.clearProperty(key)


def stop_sessions(gateway: JavaGateway) -> None:
    """Stop the sessions of a kernel that has ended, even one that was just starting or stopping."""
    spark = gateway.jvm.org.apache.spark
    contexts = getattr(getattr(spark, "SparkContext$"), "MODULE$")
    end = time.monotonic() + _SECONDS
    while spark.SparkEnv.get() is not None and time.monotonic() < end:
        active = contexts.getActive()
        if active.isDefined():
            active.get().stop()
        else:
            time.sleep(0.1)


@contextlib.contextmanager
def lent_jvm(confs: Mapping[str, str] | None = None) -> Iterator[dict[str, str]]:
    """Lend the JVM to the only kernel of a server; the kernel's session begins with these settings.

    Yields the environment variables for the server.
    """
    gateway = free_jvm()
    if gateway is None:
        yield {}
        return
    with defaults(gateway, confs or {}):
        try:
            yield address(gateway)
        finally:
            stop_sessions(gateway)

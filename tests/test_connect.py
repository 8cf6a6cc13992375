"""Spark Connect: a server on loopback, and the tests of `over_connect.py` in a process without a JVM."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import over_connect
from tests.cluster import connect_server
from tests.conftest import QUICK
from tests.stores import ACCESS_KEY, SECRET_KEY, Server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.nightly]

CONFS = {"spark.connect.progress.reportInterval": "20ms"}
# By which a session has Delta.
_OF_DELTA = (
    "spark.jars",
    "spark.driver.extraClassPath",
    "spark.sql.extensions",
    "spark.sql.catalog.spark_catalog",
)
# Ends at once: threads of grpc that wait for the server may abort a process that Python takes down.
_RUN = "import os, sys, pytest; code = pytest.main(sys.argv[1:]); sys.stdout.flush(); os._exit(code)"


def run(folder: Path, env: dict[str, str], *options: str) -> None:
    """Run tests of `over_connect.py` in a process of their own."""
    command = [sys.executable, "-c", _RUN, "--quiet", "--override-ini=addopts=", "--color=no"]
    # It takes three seconds to import.
    command += ["-p", "no:nbval"]
    command += [f"--basetemp={folder / 'tests'}", over_connect.__file__, *options]
    known = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, env=known | env, capture_output=True, text=True, timeout=1_200)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def serving(spark: SparkSession, confs: dict[str, str]) -> Iterator[str]:
    """Serve a session's JVM to others, which start with these settings; gives the URL."""
    jvm = spark._jvm
    assert jvm is not None
    service = getattr(getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    known = jvm.org.apache.spark.SparkEnv.get().conf()
    confs |= {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"}
    before = {key: known.get(key) if known.contains(key) else None for key in confs}
    for key in confs:
        known.set(key, confs[key])
    service.start(spark._jsc.sc())
    try:
        yield f"sc://127.0.0.1:{service.localPort()}"
    finally:
        nothing = getattr(service, "stop$default$1")()
        service.stop(nothing, nothing)
        for key, value in before.items():
            known.remove(key) if value is None else known.set(key, value)


def test_the_path_works_over_spark_connect(spark: SparkSession, s3: Server, tmp_path: Path) -> None:
    # The server reaches S3 by its session's settings, the client by its environment.
    env = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{s3.address}",
    }
    with serving(spark, QUICK | CONFS | s3.s3a) as url:
        run(tmp_path, env | {"SPARK_REMOTE": url}, "-k", "not dies")


def test_a_server_that_dies_is_told(spark: SparkSession, tmp_path: Path) -> None:
    known = spark.sparkContext.getConf()
    confs = QUICK | CONFS | {key: value for key in _OF_DELTA if (value := known.get(key))}
    with connect_server(tmp_path, confs) as (url, pid):
        run(tmp_path, {"SPARK_REMOTE": url, over_connect.SERVER: str(pid)}, "-k", "dies")

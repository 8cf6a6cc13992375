"""Spark Connect: a server on loopback, and the tests of `over_connect.py` in a process without a JVM."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import over_connect
from tests.cluster import connect_server
from tests.conftest import QUICK

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# By which a session has Delta.
_OF_DELTA = (
    "spark.jars",
    "spark.driver.extraClassPath",
    "spark.sql.extensions",
    "spark.sql.catalog.spark_catalog",
)
# Ends at once: threads of grpc that wait for the server may abort a process that Python takes down.
_RUN = "import os, sys, pytest; code = pytest.main(sys.argv[1:]); sys.stdout.flush(); os._exit(code)"


def test_what_is_to_work_over_spark_connect(spark: SparkSession, tmp_path: Path) -> None:
    known = spark.sparkContext.getConf()
    confs = QUICK | {key: value for key in _OF_DELTA if (value := known.get(key))}
    confs |= {
        "spark.connect.progress.reportInterval": "20ms",
        "spark.sql.warehouse.dir": str(tmp_path / "lake"),
    }
    command = [sys.executable, "-c", _RUN, "--quiet", "--override-ini=addopts=", "--color=no"]
    command += [f"--basetemp={tmp_path / 'tests'}", over_connect.__file__]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    with connect_server(tmp_path, confs) as url:
        env["SPARK_REMOTE"] = url
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr

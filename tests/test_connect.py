"""Spark Connect: the tests of `over_connect.py` with a server on loopback, in a process without a JVM."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import over_connect
from tests.cluster import connect_server
from tests.conftest import QUICK
from tests.stores import ACCESS_KEY, SECRET_KEY, Server

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

# By which a session has Delta.
_OF_DELTA = (
    "spark.jars",
    "spark.driver.extraClassPath",
    "spark.sql.extensions",
    "spark.sql.catalog.spark_catalog",
)
# Ends at once: threads of grpc that wait for the server may abort a process that Python takes down.
_RUN = "import os, sys, pytest; code = pytest.main(sys.argv[1:]); sys.stdout.flush(); os._exit(code)"


def test_the_path_works_over_spark_connect(spark: SparkSession, s3: Server, tmp_path: Path) -> None:
    known = spark.sparkContext.getConf()
    confs = QUICK | {key: value for key in _OF_DELTA if (value := known.get(key))}
    # The server reaches S3 by its settings, the client by its environment.
    confs |= {f"spark.hadoop.{key}": value for key, value in s3.s3a.items()}
    confs |= {"spark.connect.progress.reportInterval": "20ms"}
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    env |= {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://{s3.address}"}
    command = [sys.executable, "-c", _RUN, "--quiet", "--override-ini=addopts=", "--color=no"]
    # What reads notebooks takes three seconds to import.
    command += ["-p", "no:nbval", f"--basetemp={tmp_path / 'tests'}", over_connect.__file__]
    with connect_server(tmp_path, confs) as (url, pid):
        env |= {"SPARK_REMOTE": url, over_connect.SERVER: str(pid)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1_200)
    assert done.returncode == 0, done.stdout + done.stderr

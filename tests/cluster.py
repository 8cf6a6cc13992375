"""Spark on loopback: a standalone cluster, Python environments for executors, and a Spark Connect server."""

import contextlib
import os
import socket
import subprocess
import sysconfig
import time
import venv
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from compaction_kit.session import find_java_home

# Two hosts, because Spark starts a second attempt of a task only on another host.
_HOSTS = ("127.0.0.1", "127.0.0.2")
_WORKER_MIB = 1024
_STARTING_SECONDS, _ENDING_SECONDS = 60, 20


def python_with(folder: Path, *packages: str) -> Path:
    """Make a Python environment that has some packages of this one, and nothing else."""
    venv.create(folder, symlinks=True)
    bases = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", "venv", bases))
    for package in packages:
        found = find_spec(package)
        assert found is not None
        assert found.origin is not None
        (site / package).symlink_to(Path(found.origin).parent)
    return folder / "bin" / "python"


@contextlib.contextmanager
def standalone(spark: SparkSession, folder: Path) -> Iterator[str]:
    """Run a master and two workers with one core each while the block runs; yield the master's URL.

    They run in the JVM of a local session, as in Spark's own LocalSparkCluster, but on two hosts.
    """
    if not all(map(_is_own, _HOSTS)):
        pytest.skip("this machine has no second address on loopback")
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    deploy, conf = gateway.jvm.org.apache.spark.deploy, gateway.jvm.org.apache.spark.SparkConf(False)
    masters, workers = (
        getattr(getattr(package, name), "MODULE$")
        for package, name in ((deploy.master, "Master$"), (deploy.worker, "Worker$"))
    )
    master = masters.startRpcEnvAndEndpoint(_HOSTS[0], 0, 0, conf)._1()
    running, urls = [master], gateway.new_array(gateway.jvm.java.lang.String, 1)
    urls[0] = f"spark://{_HOSTS[0]}:{master.address().port()}"
    number, resources = (getattr(workers, f"startRpcEnvAndEndpoint$default${at}")() for at in (8, 10))
    try:
        for host in _HOSTS:
            work = str(folder / "work" / host)
            running.append(
                workers.startRpcEnvAndEndpoint(
                    host, 0, 0, 1, _WORKER_MIB, urls, work, number, conf, resources
                )
            )
        yield urls[0]
    finally:
        # Stop the master last, because workers would try to reach it.
        for environment in reversed(running):
            environment.shutdown()
            environment.awaitTermination()


@contextlib.contextmanager
def connect_server(folder: Path, confs: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Run a Spark Connect server with these settings while the block runs; yield its URL and process id."""
    confs = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": _HOSTS[0],
        "spark.connect.grpc.binding.port": 0,
        **confs,
    }
    home, log = _find_spark_home(), folder / "connect.log"
    own = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
    own |= {"SPARK_HOME": home, "SPARK_LOCAL_IP": _HOSTS[0]}
    own |= {"SPARK_DAEMON_MEMORY": "1g", "JAVA_HOME": str(find_java_home(folder))}
    command = [f"{home}/bin/spark-class", "org.apache.spark.deploy.SparkSubmit"]
    command += [option for key, value in confs.items() for option in ("--conf", f"{key}={value}")]
    # spark-submit takes "spark-internal" if there is no application file.
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=own, stdout=out, stderr=out)
    try:
        port = _waited(log, f"Spark Connect server started at: {_HOSTS[0]}:").split()[0]
        yield f"sc://{_HOSTS[0]}:{port}", process.pid
    finally:
        process.terminate()
        try:
            process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _waited(log: Path, sign: str) -> str:
    """Wait until a log contains `sign`, and return the text after it."""
    end = time.monotonic() + _STARTING_SECONDS
    while sign not in (text := log.read_text()) or not text.endswith("\n"):
        assert time.monotonic() < end, text
        time.sleep(0.05)
    return text.partition(sign)[2]


def _is_own(host: str) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind((host, 0))
        except OSError:
            return False
    return True

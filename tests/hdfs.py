"""HDFS in one process on this machine: Hadoop's own cluster for tests, with one data node."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from compaction_kit.session import cache_folder, find_java_home

_SPARKS = Path(pyspark.__file__).with_name("jars")
# What the cluster needs beside Spark's own JARs. Its launcher is a test of Hadoop's, so JUnit comes along.
_PACKAGES = (
    "org.apache.hadoop hadoop-client-minicluster 3.5.0",
    "org.junit.jupiter junit-jupiter-api 5.13.4",
    "org.junit.platform junit-platform-commons 1.13.4",
    "org.opentest4j opentest4j 1.3.0",
)
_USED = ("hadoop-client-", "log4j-", "slf4j-api-", "jcl-over-slf4j-")
_SECONDS = 120


@contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """Run a cluster whose files are in a folder; yields its URI."""
    java = find_java_home(cache_folder()) / "bin" / "java"
    jars = [*_packages(java), *(jar for jar in _SPARKS.glob("*.jar") if jar.name.startswith(_USED))]
    details = folder / "details.json"
    command = [
        *(str(java), "-Xmx512m", "-XX:+UseSerialGC", f"-Dtest.build.data={folder}"),
        *(f"-Dhdfs.minidfs.basedir={folder}", "-cp", os.pathsep.join(map(str, jars))),
        *("org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1", "-nnport", "0"),
        *("-D", "dfs.namenode.fs-limits.min-block-size=0", "-writeDetails", str(details)),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        end = time.monotonic() + _SECONDS
        while not details.exists() or not details.stat().st_size:
            assert process.poll() is None, (folder / "log").read_text()[-2_000:]
            assert time.monotonic() < end, "HDFS did not start"
            time.sleep(0.1)
        port = details.read_text().partition(":")[2].strip(" }\n")
        yield f"hdfs://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _packages(java: Path) -> list[Path]:
    """Fetch JARs with Ivy, which Spark has for its own packages."""
    folder, ivy = cache_folder() / "hdfs", next(_SPARKS.glob("ivy-*.jar"))
    for package in _PACKAGES:
        _, name, version = package.split()
        if not (folder / f"{name}-{version}.jar").exists():
            command = [
                *(str(java), "-jar", str(ivy), "-cache", f"{folder}/ivy", "-types", "jar", "-notransitive"),
                *("-dependency", *package.split(), "-retrieve", f"{folder}/[artifact]-[revision].[ext]"),
            ]
            subprocess.run(command, check=True, capture_output=True)
    return list(folder.glob("*.jar"))

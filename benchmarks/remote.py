"""Measure first reads and compactions on a slow object store, and compare with other engines.

    python -m benchmarks.remote [looks] [compaction] [--delay 30] [--factor 1]

Runs an S3 server on this machine (versitygw, built once with go) behind a proxy that delays each request.
A first look reads the live files and their sizes, each time in a new process. Compactions run on copies
of one table, all in one session; their times end with the commit, and the time of the proof is printed
separately. Prints the seconds, the requests, and ratios to the kit.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, S3FileSystem

from benchmarks import compact, inspect, measure_alone, parser, timed

HERE = Path(__file__).parent
KEY, SECRET, BUCKET = "kit-access", "kit-hidden", "kit"
READERS = ("kit", "deltalake", "delta")
WAYS = ("arrow", "deltalake", "optimize")
# Required speed-ups of the kit; "proof" is the longest proof, as a multiple of the run's time.
TARGETS = {"deltalake look": 1.5, "delta look": 5.0, "optimize": 5.0, "deltalake": 1.0, "proof": 2.0}
REPEATS = 3


def main(parts: list[str], delay: int, factor: float) -> None:
    with tempfile.TemporaryDirectory(prefix="remote-") as name, server(Path(name), delay) as (direct, slow):
        os.environ |= {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{slow}",
            "AWS_ALLOW_HTTP": "true",
        }
        files = filesystem(direct)
        files.create_dir(BUCKET)
        if "looks" in parts:
            looks(Path(name), files, slow, factor)
        if "compaction" in parts:
            compaction(Path(name), files, slow, factor)


def looks(folder: Path, files: S3FileSystem, slow: str, factor: float) -> None:
    shapes = {
        f"{int(5_000 * factor):,} files, in a checkpoint and 10 commits": (int(5_000 * factor), 10),
        f"{int(5_000 * factor):,} files in 100 commits": (int(5_000 * factor), 100),
        f"checkpoint of {int(1_000_000 * factor):,} adds and 10 commits": (int(1_000_000 * factor), 10),
    }
    for number, (words, (num_adds, tail)) in enumerate(shapes.items()):
        table = inspect.make_log(folder / f"look{number}", num_adds, 3, tail)
        for checkpoint in (table / "_delta_log").glob("*.checkpoint.parquet"):
            # Write few row groups, as Delta does, because some readers need a request for each row group.
            pq.write_table(pq.read_table(checkpoint), checkpoint)
        look(words, upload(files, table, f"look{number}"), slow)
        shutil.rmtree(table)
    commits = int(10_000 * factor)
    table = many_commits(folder / "commits", commits)
    look(
        f"{commits:,} commits of a file, the last 10 after a checkpoint",
        upload(files, table, "commits"),
        slow,
    )


def many_commits(table: Path, commits: int) -> Path:
    """Write a log that still has all its commits, and a checksum file for each, as Delta writes them."""
    from deltalake import DeltaTable

    log = table / "_delta_log"
    log.mkdir(parents=True)
    for version, text in enumerate(inspect.commit_texts(commits, 3, commits)):
        if version == commits - 10:
            DeltaTable(table).create_checkpoint()
        (log / f"{version:020d}.json").write_text(text)
        (log / f"{version:020d}.crc").write_text("{}")
    return table


def look(words: str, uri: str, slow: str) -> None:
    print(f"\nFirst look: {words}", flush=True)
    found: dict[str, float] = {}
    for reader in READERS:
        repeats = REPEATS if reader != "delta" else 1
        found[reader], requests = min(measure_alone("remote", reader, uri, slow) for _ in range(repeats))
        say(reader, found[reader], found["kit"], requests, TARGETS.get(f"{reader} look"))


def measure(reader: str, uri: str, slow: str) -> None:
    """Print the seconds and requests of a reader, without imports and without Spark's start."""
    # pyarrow imports pandas for its first array.
    import pandas  # noqa: F401

    import compaction_kit as ck
    import compaction_kit.storage.filesystems
    import compaction_kit.table

    read: Callable[[], object]
    if reader == "kit":
        read = lambda: ck.open_table(uri).files().histogram()  # noqa: E731
    elif reader == "deltalake":
        import deltalake

        read = lambda: deltalake.DeltaTable(uri.replace("s3a:", "s3:")).get_add_actions()  # noqa: E731
    else:
        spark = session(slow)
        spark.range(1).count()
        delta = spark._jvm.org.apache.spark.sql.delta.DeltaLog

        def read() -> object:
            return delta.forTable(spark._jsparkSession, uri).unsafeVolatileSnapshot().allFiles().count()

    counts(slow)
    seconds, _ = timed(read)
    print(json.dumps([seconds, counts(slow)]))


def compaction(folder: Path, files: S3FileSystem, slow: str, factor: float) -> None:
    import deltalake

    import compaction_kit as ck

    spark = session(slow)
    warm(spark, folder, files)
    for partitions in (0, 100):
        num_files = int(5_000 * factor) // max(partitions, 1)
        shape = compact.Shape(partitions, num_files, 20_000, 1 << 30, (0, 0), 0, 0, compact.random_numbers)
        table = shape.make(spark, folder / f"t{partitions}", shape)
        print(f"\nCompaction: {partitions or 'no'} partitions of {num_files:,} files of 20 KB", flush=True)
        found: dict[str, float] = {}
        for way in WAYS:
            uri = upload(files, Path(table), f"t{partitions}-{way}")
            counts(slow)
            start = time.perf_counter()
            if way == "deltalake":
                deltalake.DeltaTable(uri.replace("s3a:", "s3:")).optimize.compact(target_size=shape.target)
                proof = 0.0
            else:
                plan = ck.open_table(uri, spark).plan_compaction(max_file_size=shape.target)
                result = plan.run(strategy=way, verify=way == "arrow")
                spans = [row for row in result.timeline.to_pylist() if row["step"] == "proof"]
                proof = sum(row["seconds"] for row in spans)
            found[way] = time.perf_counter() - start - proof
            say(way, found[way], found["arrow"], counts(slow), TARGETS.get(way))
            if proof:
                missed = proof > TARGETS["proof"] * found[way]
                print(f"  {'proof':<10} {proof:7.1f} s{'   NOT REACHED' if missed else ''}", flush=True)


def warm(spark: Any, folder: Path, files: S3FileSystem) -> None:
    """Run each way before it is measured, so that Java has compiled the code and Python's workers run."""
    import compaction_kit as ck

    shape = compact.Shape(0, 20, 2_000, 1 << 30, (0, 0), 0, 0, compact.random_numbers)
    table = compact.random_numbers(spark, folder / "warm", shape)
    for turn in range(2):
        for way in ("arrow", "optimize"):
            uri = upload(files, table, f"warm-{way}-{turn}")
            ck.open_table(uri, spark).plan_compaction().run(strategy=way)


def say(way: str, seconds: float, ours: float, requests: dict[str, int], target: float | None) -> None:
    ratio = seconds / ours
    line = f"  {way:<10} {seconds:7.2f} s   {ratio:5.1f} ×   {requests}"
    missed = target is not None and ratio < target
    print(f"{line}   NOT REACHED: {target} ×" if missed else line, flush=True)


def session(slow: str) -> Any:
    import compaction_kit as ck

    s3a = {
        "access.key": KEY,
        "secret.key": SECRET,
        "endpoint": f"http://{slow}",
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
    }
    return ck.get_spark({f"spark.hadoop.fs.s3a.{key}": value for key, value in s3a.items()}, s3=True)


def filesystem(address: str) -> S3FileSystem:
    return S3FileSystem(
        access_key=KEY,
        secret_key=SECRET,
        region="us-east-1",
        scheme="http",
        endpoint_override=address,
        allow_bucket_creation=True,
        allow_delayed_open=True,
    )


def upload(files: S3FileSystem, folder: Path, name: str) -> str:
    def copy(path: Path) -> None:
        with files.open_output_stream(f"{BUCKET}/{name}/{path.relative_to(folder)}") as out:
            out.write(path.read_bytes())

    # Don't upload Hadoop's checksum files, which exist on local disks only.
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(copy, paths))
    assert len(files.get_file_info(FileSelector(f"{BUCKET}/{name}/_delta_log")))
    return f"s3a://{BUCKET}/{name}"


def counts(slow: str) -> dict[str, int]:
    """Return the number of requests since the last call, by method."""
    with urllib.request.urlopen(f"http://{slow}/_count") as answer:
        return json.load(answer)


@contextlib.contextmanager
def server(folder: Path, delay: int) -> Iterator[tuple[str, str]]:
    """Run the store; yield its address and the address of the proxy."""
    tools = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "compaction-kit" / "go"
    environment = os.environ | {"GOBIN": str(tools)}
    if not (tools / "versitygw").exists():
        package = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
        subprocess.run(["go", "install", package], env=environment, check=True)
    subprocess.run(["go", "install", "."], env=environment, cwd=HERE / "slow_s3", check=True)
    direct, slow = (f"127.0.0.1:{free_port()}" for _ in range(2))
    (folder / "objects").mkdir()
    gateway = [tools / "versitygw", "-q", "--access", KEY, "--secret", SECRET, "--port", direct]
    commands = [[*gateway, "posix", folder / "objects"], [tools / "slow_s3", slow, direct, f"{delay}ms"]]
    with contextlib.ExitStack() as stack:
        for command in commands:
            process = stack.enter_context(
                subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
            )
            stack.callback(process.terminate)
        for address in (direct, slow):
            host, port = address.split(":")
            for _ in range(100):
                with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
                    break
                time.sleep(0.1)
        yield direct, slow


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(*sys.argv[2:])
    else:
        arguments = parser(__doc__)
        arguments.add_argument("parts", nargs="*", default=["looks", "compaction"])
        arguments.add_argument("--delay", type=int, default=30, help="ms that each request waits")
        arguments.add_argument("--factor", type=float, default=1.0, help="makes tables of fewer files")
        options = arguments.parse_args()
        main(options.parts, options.delay, options.factor)

"""Read the log of a file sink with the kit, with a plain Python loop and with pandas.

    python -m benchmarks.sink_log [number of entries …]

The readers take turns on the same compaction file, each in a new process. Prints the best of
several times in seconds, ratios to the kit, and peak memory.
"""

import json
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa

import compaction_kit as ck
from benchmarks import measure_alone, parser, timed
from compaction_kit.arrow.worker.rewrite import peak_bytes
from compaction_kit.text import format_size

SEED = 0
REPEATS = 3
# The required speed-up of the kit over the plain loop to Arrow.
TARGET = 5.0


def main(numbers: list[int]) -> None:
    with tempfile.TemporaryDirectory(prefix="sink-log-") as name:
        for number in numbers:
            output = Path(name) / str(number)
            size = write_log(output, number)
            print(f"{number:,} entries, {format_size(size)}", flush=True)
            measured = {reader: measure(reader, output) for reader in READERS}
            for reader, (seconds, mib) in measured.items():
                ratio = seconds / measured["kit"][0]
                print(f"  {reader:<20} {seconds:7.2f} s  {mib:7,.0f} MiB  {ratio:5.1f} × kit", flush=True)
            if measured["plain loop to Arrow"][0] < TARGET * measured["kit"][0]:
                print(f"  NOT REACHED: the target is {TARGET} times as fast as the plain loop to Arrow")


def measure(reader: str, output: Path) -> tuple[float, float]:
    """Return the best seconds and the peak MiB of a reader; each run is a new process."""
    runs = [measure_alone("sink_log", reader, output) for _ in range(REPEATS)]
    return min(seconds for seconds, _ in runs), max(mib for _, mib in runs)


def measure_here(reader: str, output: str) -> None:
    read = READERS[reader]
    # Do the imports now, so that they aren't measured.
    with tempfile.TemporaryDirectory(prefix="sink-log-") as small:
        write_log(Path(small), 10)
        read(Path(small))
    seconds, _ = timed(lambda: read(Path(output)))
    print(json.dumps([seconds, peak_bytes() / 2**20]))


def by_kit(output: Path) -> object:
    return ck.sink_log(output).entries


def by_loop(output: Path) -> object:
    with compaction_file(output).open() as lines:
        next(lines)
        return [json.loads(line) for line in lines]


def by_loop_to_arrow(output: Path) -> object:
    return pa.Table.from_pylist(by_loop(output))


def by_pandas(output: Path) -> object:
    import pandas as pd

    with compaction_file(output).open() as lines:
        next(lines)
        return pd.read_json(lines, lines=True)


READERS: dict[str, Callable[[Path], object]] = {
    "kit": by_kit,
    "plain loop": by_loop,
    "plain loop to Arrow": by_loop_to_arrow,
    "pandas": by_pandas,
}


def compaction_file(output: Path) -> Path:
    return output / "_spark_metadata" / "9.compact"


def write_log(output: Path, number: int) -> int:
    """Write a log of `number` files, which don't exist, as Spark would; return its size in bytes."""
    rng = Random(SEED)
    path = compaction_file(output)
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        file.write("v1")
        for k in range(number):
            name = f"part-{k % 8:05d}-{uuid.UUID(int=rng.getrandbits(128))}-c000.snappy.parquet"
            entry = {
                "path": f"file:///data/events/{name}",
                "size": rng.randrange(1_000, 100_000),
                "isDir": False,
                "modificationTime": 1_700_000_000_000 + k * 1_000,
                "blockReplication": 1,
                "blockSize": 33_554_432,
                "action": "add",
            }
            file.write("\n" + json.dumps(entry, separators=(",", ":")))
    return path.stat().st_size


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure_here(*sys.argv[2:])
    else:
        arguments = parser(__doc__)
        arguments.add_argument("numbers", type=int, nargs="*", default=[1_000_000])
        main(arguments.parse_args().numbers)

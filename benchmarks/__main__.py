"""Compare the times of all installed engines with the time of "arrow" on five tables.

    python -m benchmarks [--factor 0.1] [--repeats 3] [--seeds 0 1 2]

Engines run in turn on copies of the same table, as in `benchmarks/compact.py`, which makes the tables and
measures more ways. A ratio compares best times. For several seeds, the median, minimum and maximum are
printed. --factor makes tables of fewer files, for a quick look.
"""

import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import compaction_kit as ck
from benchmarks import parser
from benchmarks.compact import SHAPES, WAYS, Runs, by_kit, measure, warm_up

TABLES = "5,000 × 2 KB", "100 × 50 × 20 KB", "2,000 × 5 × 6 KB", "24 × 19 MB", "INT96 and nested"
TUNED = "OPTIMIZE, best of its settings"
ENGINES = {
    "arrow": WAYS["arrow"],
    "arrow, proved": WAYS["arrow, proved"],
    "optimize of the kit": by_kit("optimize"),
    **{way: run for way, run in WAYS.items() if way.startswith("OPTIMIZE")},
    **({"deltalake": WAYS["deltalake"]} if find_spec("deltalake") else {}),
}


def main(factor: float, repeats: int, seeds: list[int]) -> None:
    spark = ck.get_spark()
    shown = [name for name in ENGINES if not name.startswith("OPTIMIZE,")]
    shown.insert(shown.index("OPTIMIZE") + 1, TUNED)
    print(f"Spark {spark.version}, {spark.sparkContext.defaultParallelism} cores; seconds of arrow, and how")
    print(
        "many times as long the others take: from the open table to the commit, without proof if not said\n"
    )
    print(f"| table | {' | '.join(shown)} |\n|---|{'--:|' * len(shown)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        place = Path(folder)
        warm_up(spark, place, ENGINES)
        for name in TABLES:
            found = []
            for seed in seeds:
                files = max(int(SHAPES[name].files * factor), 2)
                shape = replace(SHAPES[name], files=files, seed=seed)
                table = shape.make(spark, place / f"{name} {seed}", shape)
                found.append(best(measure(spark, table, place / "copy", shape.target, repeats, ENGINES)))
            cells = [spread([times["arrow"] for times in found], " s")]
            cells += [spread([times[way] / times["arrow"] for times in found], " ×") for way in shown[1:]]
            print(f"| {name}{f' × {factor}' * (factor != 1)} | {' | '.join(cells)} |", flush=True)


def best(runs: dict[str, Runs]) -> dict[str, float]:
    """Return the best seconds of each engine, and the best of all settings of OPTIMIZE."""
    times = {way: run.best for way, run in runs.items()}
    return times | {TUNED: min(times[way] for way in times if way.startswith("OPTIMIZE"))}


def spread(values: list[float], unit: str) -> str:
    """Format the median and, for several values, the minimum and maximum."""
    ends = f" ({min(values):.2g} to {max(values):.2g})" if len(values) > 1 else ""
    return f"{median(values):.2g}{unit}{ends}"


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--factor", type=float, default=1.0)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = arguments.parse_args()
    main(options.factor, options.repeats, options.seeds)

"""Run random cases and count their outcomes, for RELIABILITY.md: python -m tests.knocks [kind …] [--seed N].

--only KIND:NUMBER runs one case again, to find the cause of a WRONG outcome.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from tests.conftest import QUICK
from tests.jvm import own_session
from tests.knocks import bombs, faults, kills, races
from tests.knocks.oracle import Case, Outcome

WRONG = "WRONG"


# The default number of cases of each kind, and the function that runs one case.
KINDS: dict[str, tuple[int, Callable[[Case], Outcome]]] = {
    "kills": (60, kills.play),
    "races": (300, races.play),
    "races of clustered tables": (60, races.clustered),
    "faults": (150, faults.play),
    "bombs": (12, bombs.play),
    "many files": (1, bombs.play_many),
}


def play(spark: SparkSession, kind: str, seed: int, number: int) -> str:
    """Run one case; return its outcome, or WRONG, whose error is printed at once."""
    folder = Path(tempfile.mkdtemp(prefix="knocks-"))
    session = spark.newSession()
    for key, value in QUICK.items():
        session.conf.set(key, value)
    try:
        _, play_case = KINDS[kind]
        return play_case(Case(session, folder, random.Random(f"{kind} {seed} {number}")))
    except Exception:
        print(f"{WRONG}: python -m tests.knocks --seed {seed} --only '{kind}:{number}'", flush=True)
        traceback.print_exc()
        return WRONG
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def row(kind: str, found: Counter[str], seconds: float, seed: int) -> str:
    counts = [f"{count:,}" for count in (found.total(), *(found[name] for name in (*Outcome, WRONG)))]
    return f"| {kind} | {' | '.join(counts)} | {seconds:,.0f} | {seed} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.knocks", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="kind", help=f"of {', '.join(KINDS)}; all by default")
    parser.add_argument("--seed", type=int, default=29)
    parser.add_argument("--only", metavar="KIND:NUMBER", help="play one case")
    given = parser.parse_args()
    spark = own_session()
    if given.only:
        kind, _, number = given.only.rpartition(":")
        print(play(spark, kind, given.seed, int(number)))
        return 0
    rows, is_wrong = [], False
    for kind in given.kinds or KINDS:
        start, found = time.monotonic(), Counter[str]()
        count, _ = KINDS[kind]
        for number in range(count):
            found[play(spark, kind, given.seed, number)] += 1
            print(f"{kind}: {number + 1} of {count}, {found[WRONG]} {WRONG}", end="\r", flush=True)
        rows.append(row(kind, found, time.monotonic() - start, given.seed))
        print(rows[-1], flush=True)
        is_wrong |= bool(found[WRONG])
    names = ["kind", "cases", *Outcome, WRONG, "seconds", "seed"]
    print("\n".join([f"| {' | '.join(names)} |", "|---|" + "--:|" * (len(names) - 1), *rows]))
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())

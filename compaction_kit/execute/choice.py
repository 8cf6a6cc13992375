"""Which strategy runs a plan, and why."""

from typing import NamedTuple

from pyspark.sql import SparkSession

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.execute.arrow.refusals import refuse_bins, refuse_table
from compaction_kit.execute.work import Options
from compaction_kit.plan import BinPlan

NAMES = ("auto", "optimize", "rewrite", "arrow")


class Choice(NamedTuple):
    """A strategy, and why it is that one."""

    strategy: str
    reason: str


def check_strategy(plan: BinPlan, strategy: str, options: Options) -> None:
    """Refuse what can't be asked for.

    Raises:
        InvalidArgumentError: There is no such strategy, it doesn't run such a plan, or options of
            OPTIMIZE are given for another.
    """
    if strategy not in NAMES:
        raise InvalidArgumentError(f'strategy="{strategy}" is unknown: use one of {", ".join(NAMES)}.')
    if strategy not in ("auto", "arrow") and not plan.is_optimize:
        raise InvalidArgumentError(
            f'order="{plan.order}" and budget={plan.budget} are not for Delta\'s own ways, which take all '
            'that they find by size: run it with strategy="arrow".'
        )
    given = {name: value for name, value in vars(options).items() if value is not None}
    if given and strategy in ("rewrite", "arrow"):
        names = " and ".join(f"{name}={value}" for name, value in given.items())
        raise InvalidArgumentError(f'{names} is for OPTIMIZE: leave it out, or run with strategy="optimize".')
    if options.max_threads is not None and options.max_threads < 1:
        raise InvalidArgumentError(f"max_threads={options.max_threads} is too few: give 1 or more.")


def choose(spark: SparkSession, plan: BinPlan, strategy: str, options: Options) -> Choice:
    """What "auto" stands for: arrow where it can rewrite most of the bytes, else OPTIMIZE."""
    if strategy != "auto":
        return Choice(strategy, "as asked for")
    if options != Options():
        return Choice("optimize", "optimize, for options of OPTIMIZE were given")
    if not plan.is_optimize:
        return Choice("arrow", "arrow, which alone runs another order or a budget")
    reason = refuse_table(spark, plan)
    if reason is not None:
        return Choice("optimize", f"optimize, for {reason}")
    refusals = refuse_bins(plan)
    left = sum(int(plan.outcome.bytes_removed[number]) for number in refusals)
    if 2 * left > plan.bytes_removed:
        return Choice("optimize", f"optimize, for {'; '.join(sorted(set(refusals.values())))}")
    return Choice(
        "arrow",
        "arrow: one Spark job rewrites all bins with pyarrow, where OPTIMIZE starts a job for each",
    )

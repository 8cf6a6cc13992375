"""The command line, for a shell, cron and CI: `compaction-kit COMMAND PATH`."""

import argparse
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import compaction_kit as ck
from compaction_kit import errors

FINE, FOUND, NOT_DONE = 0, 1, 2
_CODES: dict[type, int] = {errors.EmptyTableError: FINE, errors.VerificationError: FOUND}
_EXIT_CODES = """exit codes:
  0  fine, also if a table has no file to compact
  1  found: a rewrite that is refuted or can't be read (audit), versions that are not proved to have the same
     rows (verify), a table that can't be read (survey), files to compact (plan --check), other rows after
     a run, which was undone if it could be (run)
  2  not done: one sentence on stderr says why (bad input, storage, Spark, no "y" to run's question)
"""
_PATH = "the path or URI of a Delta table; audit and survey also take a folder with tables"
# The options of a plan and of a survey, as `plan_compaction` and `survey` name them.
_PLAN_OPTIONS = {
    "where": "a SQL condition on partition columns, such as \"day = '2024-05-01'\"",
    "min_file_size": "files below this size are rewritten",
    "max_file_size": 'the target file size, such as "128 MiB"',
    "budget": "the most bytes to rewrite, in bins that gain the most per byte",
}


def plan(options: argparse.Namespace) -> int:
    """Show what a compaction would do; nothing is changed."""
    planned = _planned(options)
    _show(options, planned, planned.explain())
    return FOUND if options.check and not planned.is_empty else FINE


def run(options: argparse.Namespace) -> int:
    """Show the plan, ask, compact, and prove that no row has changed."""
    planned = _planned(options)
    print(planned.explain(), file=sys.stderr if options.json else sys.stdout)
    if not planned.is_empty and not options.yes:
        print(f"A run takes {planned.cost}.\nRun it? [y/N] ", end="", file=sys.stderr, flush=True)
        if (sys.stdin.readline() if sys.stdin else "").strip().lower() not in ("y", "yes"):
            raise errors.RunCancelled("Nothing was changed: answer y, or give --yes.")
    result = planned.run(progress=sys.stderr.isatty())
    _show(options, result, result.summary())
    return FINE


def verify(options: argparse.Namespace) -> int:
    """Prove that two versions have the same rows; without --versions, those around the last rewrite."""
    table = ck.open_table(options.path)
    if options.versions is None:
        found = ck.audits.rewrites(table.log)["version"].to_pylist()
        if not found:
            raise errors.InvalidArgumentError(
                f"No commit of {options.path} rewrites files: give --versions START END."
            )
        options.versions = found[-1] - 1, found[-1]
    start, end = options.versions
    diff = table.diff(start, end, verify=True)
    _show(options, diff, diff.summary())
    return FINE if diff.same_content else FOUND


def audit(options: argparse.Namespace) -> int:
    """Prove or refute each commit that rewrites files, whoever wrote it."""
    found = ck.audit(options.path, since=options.since, progress=sys.stderr.isatty())
    _show(options, found, found.explain())
    is_fine = not any(found.count(outcome) for outcome in (ck.audits.REFUTED, ck.audits.UNREADABLE))
    return FINE if is_fine else FOUND


def survey(options: argparse.Namespace) -> int:
    """Rank the tables of a folder by what a compaction would gain."""
    found = ck.survey(options.path, max_file_size=options.max_file_size, progress=sys.stderr.isatty())
    _show(options, found, found.summary())
    return FOUND if len(found.rows["error"].drop_null()) else FINE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; SystemExit for a command line that can't be parsed."""
    options = _parser().parse_args(arguments)
    if sys.stderr is None:  # closed by what started this program
        sys.stderr = io.StringIO()
    # Treat SIGTERM as Ctrl-C, which leaves nothing behind: cron, systemd and Kubernetes send it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        return int(options.do(options))
    except (errors.CompactionKitError, KeyboardInterrupt) as error:
        # A run that is interrupted raises RunCancelled, which says what is committed.
        sentence = str(error) or "Interrupted: the history of the table says what was committed."
        print(sentence, file=sys.stderr)
        if options.json:
            is_empty = isinstance(error, errors.EmptyTableError)
            print(json.dumps({} if is_empty else {"error": sentence}))
        return _CODES.get(type(error), NOT_DONE)
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            print(f"The output can't be written ({error}): free space, and run it again.", file=sys.stderr)
        # Python flushes stdout again at exit; it is replaced by a pipe that nobody reads.
        os.dup2(os.pipe()[1], sys.stdout.fileno())
        return NOT_DONE


def _planned(options: argparse.Namespace) -> Any:
    given = {name: getattr(options, name) for name in _PLAN_OPTIONS}
    return ck.open_table(options.path).plan_compaction(**given)


def _show(options: argparse.Namespace, record: Any, text: str) -> None:
    print(json.dumps(record.to_dict(), indent=2) if options.json else text, flush=True)


def _parser() -> argparse.ArgumentParser:
    style: dict[str, Any] = {"epilog": _EXIT_CODES, "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser("compaction-kit", description=ck.__doc__, **style)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(do: Callable[[argparse.Namespace], int], options: Sequence[str] = ()) -> argparse.ArgumentParser:
        command = commands.add_parser(do.__name__, help=do.__doc__, description=do.__doc__, **style)
        command.set_defaults(do=do)
        command.add_argument("path", metavar="PATH", help=_PATH)
        command.add_argument("--json", action="store_true", help="print JSON on stdout, errors too")
        for name in options:
            command.add_argument(f"--{name.replace('_', '-')}", help=_PLAN_OPTIONS[name])
        return command

    add(plan, [*_PLAN_OPTIONS]).add_argument(
        "--check", action="store_true", help="exit with 1 if there is something to compact"
    )
    add(run, [*_PLAN_OPTIONS]).add_argument("--yes", action="store_true", help="don't ask")
    add(verify).add_argument(
        "--versions", nargs=2, type=int, metavar=("START", "END"), help="the versions to compare"
    )
    add(audit).add_argument("--since", metavar="TIME", help='leave out commits before "2024-05-01 12:00"')
    add(survey, ["max_file_size"])
    return parser


if __name__ == "__main__":
    sys.exit(main())

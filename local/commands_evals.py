"""`evals`: the suites that a release must pass, against a provider. They stand above everything else, so that this finds them by name."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from common.errors import AppError

DEFAULT_REPORT = Path("build/evals")


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The subcommand of this group."""
    evals = subparsers.add_parser(
        "evals",
        help="run the suites against a provider and write a report; exits with 1 when a gate is not passed",
    )
    evals.add_argument(
        "--provider",
        choices=("offline", "anthropic", "vertex"),
        default="offline",
        help="who answers (default: %(default)s); a real one needs its key or project",
    )
    evals.add_argument(
        "--suite",
        action="append",
        default=[],
        metavar="NAME",
        help="only this suite; again, or with commas, for more",
    )
    evals.add_argument(
        "--repeat",
        type=_count,
        default=1,
        metavar="N",
        help="ask each case so often; what flickers shows as flaky",
    )
    evals.add_argument(
        "--report",
        type=Path,
        default=DEFAULT_REPORT,
        metavar="DIR",
        help="folder of the report (default: %(default)s)",
    )
    evals.add_argument(
        "--resume", action="store_true", help="go on with the run that broke off in that folder"
    )
    evals.add_argument(
        "--workers", type=_count, metavar="N", help="questions at a time (default: 1 offline, 4 otherwise)"
    )
    evals.add_argument(
        "--arms",
        action="store_true",
        help="ask budget_recall and premise_resistance again with naive blocks in the prompt, for comparison",
    )
    what = evals.add_mutually_exclusive_group()
    what.add_argument(
        "--accept", action="store_true", help="store what passed as the baseline of this provider"
    )
    what.add_argument(
        "--gate",
        action="store_true",
        help="run nothing: say by the report in the folder whether a release may go out",
    )
    what.add_argument(
        "--bad-providers",
        action="store_true",
        help="run the scripted providers and print which gates each fails",
    )
    evals.set_defaults(run=run_evals)


def run_evals(arguments: argparse.Namespace) -> int:
    """Hand over to the evals."""
    try:
        command = importlib.import_module("evals.command")
    except ModuleNotFoundError as exc:
        raise AppError(f"The evals are not installed here: {exc.name} is missing.") from exc
    return int(command.evaluate(arguments))


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 100:
        raise argparse.ArgumentTypeError("a number from 1 to 100 is needed")
    return number

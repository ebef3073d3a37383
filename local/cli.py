"""The command `memberintel`: one file a group of subcommands, each with `add_parsers(subparsers)`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from common.errors import AppError
from local import (
    commands_accounts,
    commands_evals,
    commands_knowledge,
    commands_look,
    commands_run,
    commands_site,
    commands_smoke,
    commands_warehouse,
)
from local.stack import DEFAULT_DATA

GROUPS = (
    commands_run,
    commands_accounts,
    commands_evals,
    commands_site,
    commands_knowledge,
    commands_look,
    commands_smoke,
    commands_warehouse,
)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="memberintel", description="Run, load and look into MemberIntel, on a laptop or in the cloud."
    )
    top.add_argument(
        "--data",
        type=Path,
        default=DEFAULT_DATA,
        metavar="DIR",
        help="folder of the local data (default: %(default)s); it outlives a restart",
    )
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in GROUPS:
        group.add_parsers(subparsers)
    _accept_data_behind(top)
    return top


def _accept_data_behind(parser: argparse.ArgumentParser) -> None:
    """Let `--data` stand behind any subcommand too, where one is used to write options."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in set(action.choices.values()):
                one.add_argument(
                    "--data", type=Path, default=argparse.SUPPRESS, metavar="DIR", help=argparse.SUPPRESS
                )
                _accept_data_behind(one)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit code: 0, or 1 with one line on standard error that says what to do."""
    arguments = parser().parse_args(argv)
    try:
        return int(arguments.run(arguments) or 0)
    except AppError as exc:
        print(f"memberintel {arguments.command}: {exc.detail}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 1
    except OSError as exc:  # a folder that may not be written, a full disk, a file that is not there
        print(
            f"memberintel {arguments.command}: {exc.strerror or exc}: {exc.filename or ''}".rstrip(": "),
            file=sys.stderr,
        )
        return 1


if __name__ == "__main__":
    sys.exit(main())

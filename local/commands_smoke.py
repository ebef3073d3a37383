"""`smoke`: whether a deployed system answers a customer."""

from __future__ import annotations

import argparse
from pathlib import Path

from common.errors import AppError
from local import demo, smoke
from local.issuer import Issuer


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The subcommands of this group."""
    parser = subparsers.add_parser(
        "smoke", help="a whole turn on a running system: its answer, its snapshot, its log events"
    )
    parser.add_argument("--url", required=True, help="address of the system, such as http://127.0.0.1:8080")
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--user",
        metavar="EMAIL",
        default=demo.OWNER,
        help="a user of the local issuer (default: %(default)s)",
    )
    who.add_argument(
        "--sign-in", type=Path, metavar="FILE",
        help="JSON with the `token_url` and the `form` by which a deployed system's issuer gives the smoke user an ID token",
    )  # fmt: skip
    logs = parser.add_mutually_exclusive_group(required=True)
    logs.add_argument("--project", metavar="ID", help="project in whose log the events are looked up")
    logs.add_argument("--no-logs", action="store_true", help="leave the log out, as on a laptop")
    parser.add_argument(
        "--seconds", type=_seconds, default=120.0, help="longest wait for snapshot and log (default: 120)"
    )
    parser.set_defaults(run=smoke_test)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 1800:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds up to 1800")
    return seconds


def smoke_test(arguments: argparse.Namespace) -> int:
    """Go the whole way, and say after each part that it went well."""
    if not arguments.url.startswith(("http://", "https://")):
        raise AppError("--url begins with http:// or https://.")
    url = arguments.url
    token = smoke.sign_in(arguments.sign_in) if arguments.sign_in else _local_token(arguments)
    turn = smoke.converse(url, token)
    print(f"answer: {turn.characters} characters by {turn.model}", flush=True)
    print(f"snapshot: {smoke.find_snapshot(url, token, turn, arguments.seconds)}", flush=True)
    if not arguments.no_logs:
        revision = smoke.read_events(smoke.logging_client(arguments.project), turn, arguments.seconds)
        print(f"log: every event of the turn, written by {revision}", flush=True)
    smoke.delete_conversation(url, token, turn)
    print("The system answers.")
    return 0


def _local_token(arguments: argparse.Namespace) -> str:
    arguments.data.mkdir(parents=True, exist_ok=True)
    return Issuer(arguments.data).customer_token(arguments.user)

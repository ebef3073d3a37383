"""`export`, `cutover check`, `usage-report`: the copy in BigQuery, the move to it, and how the knowledge base fares."""

from __future__ import annotations

import argparse
import getpass
import sys
from datetime import datetime

import sqlalchemy as sa

from common import db
from common.config import settings
from common.errors import AppError, ConfigError
from common.jobs import run_job
from common.knowledge.performance import FINDINGS, MAX_DAYS, usage_report
from common.text import to_json
from common.warehouse.bigquery import Warehouse, warehouse
from common.warehouse.cutover import compare_sinks, verdict
from common.warehouse.export import export_steps
from local.stack import now, opened


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The subcommands of this group."""
    export = subparsers.add_parser(
        "export", help="load the closed days that are due into BigQuery, as each night"
    )
    export.add_argument("--now", type=_moment, metavar="ISO", help="the time it shall take it to be")
    export.set_defaults(run=export_days)

    cutover = subparsers.add_parser("cutover", help="the move of the retrieval log to BigQuery")
    check = cutover.add_subparsers(required=True, metavar="check").add_parser(
        "check", help="compare both sinks day by day and say whether switching is safe; exits with 1 if not"
    )
    check.set_defaults(run=check_cutover)

    report = subparsers.add_parser("usage-report", help="how the entries of the knowledge base fare")
    report.add_argument(
        "--days",
        type=_days,
        default=30,
        metavar="DAYS",
        help="days of the trend, at most a year (default: %(default)s)",
    )
    report.add_argument("--json", action="store_true", help="the whole report as JSON")
    report.set_defaults(run=print_usage_report)


def export_days(arguments: argparse.Namespace) -> int:
    """Load the days, and print a line for each table."""
    with opened(arguments.data):
        steps = export_steps(_warehouse())
        report = run_job("export_bigquery", steps, now=arguments.now or now(), config=settings())
    for step in report.steps:
        counts = f"{step.get('days', 0)} days, {step.get('rows', 0)} rows"
        left = f", {step['left']} days left" if step.get("left") else ""
        print(f"{step['step']:<20} {step['outcome']:<7} {counts}{left}", file=sys.stderr)
    if report.failed:
        raise AppError(
            "A table could not be exported; the log lines above say why. Run it again once that is mended."
        )
    return 0


def check_cutover(arguments: argparse.Namespace) -> int:
    """Print each day's counts and the verdict."""
    with opened(arguments.data):
        _note("cutover-check")
        with db.transaction("sweep") as connection:
            found = verdict(settings(), compare_sinks(connection, _warehouse(), now=now()))
    for day in found["days"]:
        mark = " " if day["postgres"] == day["bigquery"] else "*"
        print(f"{mark} {day['day']}  PostgreSQL {day['postgres']:>8}  BigQuery {day['bigquery']:>8}")
    for reason in found["reasons"]:
        print(reason)
    print("Switching is safe." if found["safe"] else "Switching is not safe.")
    return 0 if found["safe"] else 1


def print_usage_report(arguments: argparse.Namespace) -> int:
    """Print the findings with the entries of each, or everything as JSON."""
    with opened(arguments.data):
        _note("usage-report")
        with db.transaction("admin_read") as connection:
            report = usage_report(connection, now=now(), days=arguments.days)
    if arguments.json:
        print(to_json(report))
        return 0
    totals = report["totals"]
    print(", ".join(f"{totals[name]} {name}" for name in ("retrieved", "surfaced", "cited", "helpful")))
    for finding, meaning in FINDINGS.items():
        print(f"\n{report['findings'][finding]} {finding.replace('_', ' ')}: {meaning}")
        for entry in (e for e in report["entries"] if e["finding"] == finding):
            counts = "/".join(str(entry[name]) for name in ("retrieved", "surfaced", "cited", "helpful"))
            print(f"  {counts:>16}  {entry['title']}")
    return 0


def _warehouse() -> Warehouse:
    if not settings().bigquery_dataset:
        raise ConfigError("There is no dataset: set MEMBERINTEL_BIGQUERY_DATASET to `project.dataset`.")
    return warehouse(settings())


def _note(action: str) -> None:
    with db.transaction("owner") as connection:
        connection.execute(
            sa.text("insert into access_log (actor, action, created_at) values (:actor, :action, :now)"),
            {"actor": f"command:{getpass.getuser()}", "action": action, "now": now()},
        )


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no ISO 8601 time") from None
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError("the time needs its zone")
    return moment


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= MAX_DAYS):
        raise argparse.ArgumentTypeError(f"a number from 1 to {MAX_DAYS} is wanted")
    return int(text)

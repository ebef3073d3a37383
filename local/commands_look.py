"""`route`, `recall` and `explain`: looking at what made an answer. Each look at a customer's data is written to the access log."""

from __future__ import annotations

import argparse
import getpass
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common import db
from common.advisor import router
from common.errors import AppError, NotFound
from common.memory.snapshot_summary import recall_block
from common.memory.snapshots import recall_snapshots
from common.text import clean_text
from local.stack import opened


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The subcommands of this group."""
    route = subparsers.add_parser("route", help="where a query would go, with the reasons, as JSON")
    asked = route.add_mutually_exclusive_group(required=True)
    asked.add_argument("query", nargs="?", metavar="QUERY")
    asked.add_argument(
        "--file",
        type=Path,
        metavar="QUERIES.jsonl",
        help='many of them, a line each: {"q": …, "route": …}; with the accuracy',
    )
    route.add_argument("--site", metavar="NAME", help="the site whose plans a query may name")
    route.set_defaults(run=print_route)

    recall = subparsers.add_parser(
        "recall", help="the block of snapshots that the next turn's prompt would get"
    )
    recall.add_argument("--conversation", required=True, type=uuid.UUID, metavar="ID")
    recall.set_defaults(run=print_recall)

    explain = subparsers.add_parser("explain", help="everything that made an answer, as JSON")
    explain.add_argument("--turn", required=True, type=uuid.UUID, metavar="ID")
    explain.set_defaults(run=print_explanation)


def print_route(arguments: argparse.Namespace) -> int:
    """Print the route of the query, or of each in the file with how many are as their line says."""
    plans = _plans(arguments) if arguments.site else ()
    if arguments.file is None:
        print(json.dumps(_routed(arguments.query, plans), indent=2, ensure_ascii=False))
        return 0
    found = []
    for number, line in enumerate(arguments.file.read_bytes().splitlines(), 1):
        if line.strip():
            asked = _read_query(line, number)
            got = _routed(asked["q"], asked["plans"] or plans)
            found.append(got | {"expected": asked["route"], "correct": got["route"] == asked["route"]})
    correct = sum(row["correct"] for row in found)
    accuracy = round(correct / len(found), 4) if found else None
    report = {"accuracy": accuracy, "correct": correct, "total": len(found), "queries": found}
    print(json.dumps(report, indent=2, ensure_ascii=False))
    return 0


def _routed(query: str, plans: Sequence[str]) -> dict[str, Any]:
    chosen = router.route(query, plans)
    return {
        "q": query,
        "route": chosen.name,
        "confidence": chosen.confidence,
        "reasons": list(chosen.reasons),
    }


def _read_query(line: bytes, number: int) -> dict[str, Any]:
    """A line, which may name plans of its own, as the labelled queries do."""
    try:
        asked = json.loads(line)
        query, expected = clean_text(asked["q"]), str(asked["route"])
        return {"q": query, "route": expected, "plans": [clean_text(plan) for plan in asked.get("plans", ())]}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise AppError(f'Line {number} is not {{"q": "…", "route": "…"}}.') from None


def _plans(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The names of the site's plans; of all of them where several customers have a site of that name."""
    with opened(arguments.data):
        with db.transaction("owner") as connection:
            found = sa.text("select user_id, id from sites where name = :name")
            sites = connection.execute(found, {"name": arguments.site}).all()
        if not sites:
            raise NotFound(f"There is no site {arguments.site!r}.")
        names: set[str] = set()
        for site in sites:
            with db.user_transaction(site.user_id) as connection:
                plans = sa.text(
                    "select name from memberships where user_id = :user_id and site_id = :site_id"
                )
                names |= set(connection.scalars(plans, {"user_id": site.user_id, "site_id": site.id}))
    return tuple(sorted(names))


def print_recall(arguments: argparse.Namespace) -> int:
    """Print the block, or that there is none."""
    with opened(arguments.data):
        user_id = _owner_of("conversations", arguments.conversation, "recall")
        with db.user_transaction(user_id) as connection:
            zone = connection.scalar(
                sa.text("""
                    select s.timezone from conversations c left join sites s on s.id = c.site_id
                    where c.user_id = :user_id and c.id = :id
                """),
                {"user_id": user_id, "id": arguments.conversation},
            )
            snapshots = recall_snapshots(connection, user_id=user_id, conversation_id=arguments.conversation)
    block, _ = recall_block(snapshots, zone or "UTC")
    print(block or "(nothing to recall: no block would be in the prompt)")
    return 0


def print_explanation(arguments: argparse.Namespace) -> int:
    """Print the route, the prompt's sections, the calls, tools, candidates and charges of a turn."""
    with opened(arguments.data):
        user_id = _owner_of("turns", arguments.turn, "explain")
        with db.user_transaction(user_id) as connection:
            print(json.dumps(explanation(connection, user_id, arguments.turn), indent=2, default=str))
    return 0


def explanation(connection: Connection, user_id: uuid.UUID, turn_id: uuid.UUID) -> dict[str, Any]:
    """What is stored of how the turn's answer came about."""
    turn = connection.execute(
        sa.text("""
            select id, conversation_id, session_id, status, error, trace, started_at, finished_at
            from turns where user_id = :user_id and id = :turn_id
        """),
        {"user_id": user_id, "turn_id": turn_id},
    ).one()
    charges = connection.execute(
        sa.text("""
            select kind, provider, model, state, reserved_usd, cost_usd, input_tokens, output_tokens, cache_read_tokens,
                   cache_write_tokens
            from usage_charges where user_id = :user_id and turn_id = :turn_id order by created_at
        """),
        {"user_id": user_id, "turn_id": turn_id},
    )
    candidates = connection.execute(
        sa.text("""
            select r.entry_id, b.title, r.rank, r.score, r.surfaced, r.cited
            from retrieval_events r
            join messages m on m.id = r.message_id and m.user_id = :user_id
            left join brain_entries b on b.id = r.entry_id
            where r.user_id = :user_id and m.turn_id = :turn_id order by r.rank
        """),
        {"user_id": user_id, "turn_id": turn_id},
    )
    trace = turn.trace or {}
    return {
        **{k: v for k, v in turn._mapping.items() if k != "trace"},
        **trace,
        "candidates": [dict(row._mapping) for row in candidates],
        "charges": [dict(row._mapping) for row in charges],
    }


def _owner_of(table: str, row_id: uuid.UUID, action: str) -> uuid.UUID:
    """The user that a row belongs to, with the look written down."""
    with db.transaction("owner") as connection:
        user_id: uuid.UUID | None = connection.scalar(
            sa.text(f"select user_id from {table} where id = :id"),
            {"id": row_id},
        )
        if user_id is None:
            raise NotFound(f"There is no such row in {table}.")
        connection.execute(
            sa.text(
                "insert into access_log (actor, action, user_id, created_at) values (:actor, :action, :user_id, now())"
            ),
            {"actor": getpass.getuser(), "action": action, "user_id": user_id},
        )
    return user_id

"""`admin`: the usage report of the knowledge base, the triggers, where the cutover stands, and a search laid open.

Behind Cloudflare Access, for what it shows leads to customers' answers; each look is a row of `access_log`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from flask import Request, Response
from sqlalchemy import Connection

from common import auth, db
from common.db import transaction
from common.errors import InvalidFields
from common.http import Call, Endpoints
from common.knowledge.embeddings import embedder
from common.knowledge.performance import FINDINGS, MAX_DAYS, usage_report
from common.knowledge.search import search_brain
from common.text import to_json
from common.warehouse.cutover import cutover_status
from common.warehouse.triggers import last_assessment
from common.warm_up import in_each_worker
from functions.admin import charts
from functions.admin.tables import csv_response, wants_csv

MAX_CANDIDATES = 50
_NOBODY = uuid.UUID(int=0)

endpoints = Endpoints()
in_each_worker(auth.preload, db.preload)


@contextmanager
def looking(call: Call, action: str, **details: Any) -> Iterator[Connection]:
    """A transaction that sees what the report needs, and notes who looked at what."""
    with transaction("admin_read") as connection:
        connection.execute(
            sa.text("""
                insert into access_log (actor, action, details, created_at)
                values (:actor, :action, cast(:details as jsonb), :now)
            """),
            {"actor": call.caller, "action": action, "details": to_json(details), "now": call.now},
        )
        yield connection


@endpoints.route("GET", "/admin", gate="admin")
def page(call: Call) -> Response:
    """The console at its report. Who comes by this address has been let in by Access, whose cookie the report's requests need."""
    return Response(status=303, headers={"Location": "/#/admin"})


@endpoints.route("GET", "/admin/v1/usage-report", gate="admin")
def report(call: Call) -> Response | dict[str, Any]:
    """The usage report; as CSV, its entries; with `pictures=light` or `dark`, its charts as well, and what each finding means."""
    days = _number(call, "days", 30, MAX_DAYS)
    scheme = call.request.args.get("pictures")
    if scheme not in (None, *charts.SCHEMES):
        raise InvalidFields(f"pictures: give one of {', '.join(charts.SCHEMES)}.")
    with looking(call, "usage-report", csv=wants_csv(call.request)) as connection:
        found = usage_report(connection, now=call.now, days=days)
    if wants_csv(call.request):
        return csv_response("usage-report", found["entries"])
    return {**found, "meanings": FINDINGS, "pictures": charts.pictures(found, scheme)} if scheme else found


@endpoints.route("GET", "/admin/v1/triggers", gate="admin")
def triggers(call: Call) -> Response | dict[str, Any]:
    """Each condition with its value, as of the last nightly run, and its threshold."""
    with looking(call, "triggers", csv=wants_csv(call.request)) as connection:
        found = last_assessment(connection)
    return csv_response("triggers", found["triggers"]) if wants_csv(call.request) else found


@endpoints.route("GET", "/admin/v1/cutover", gate="admin")
def cutover(call: Call) -> dict[str, Any]:
    """Where the move to BigQuery stands."""
    with looking(call, "cutover") as connection:
        return cutover_status(connection, call.config)


@endpoints.route("GET", "/admin/v1/retrieval", gate="admin")
def retrieval(call: Call) -> dict[str, Any]:
    """The candidates of the knowledge base for `q` in their final order. Not logged as retrieval: no customer asked."""
    query = call.request.args.get("q", "").strip()[:1000]
    if not query:
        raise InvalidFields("q: say what to search for.")
    limit = _number(call, "limit", 5, MAX_CANDIDATES)
    model = embedder(call.config)
    vector = model.embed([query], kind="query")[0]
    with looking(call, "retrieval") as connection:
        found = search_brain(
            connection,
            user_id=_NOBODY,
            query=query,
            query_embedding=vector,
            model=model.name,
            collection="knowledge",
            limit=limit,
            trace=True,
        )
    shown = ("entry_id", "document", "title", "url", "rank", "score", "surfaced")
    return {
        "model": model.name,
        "candidates": [{name: getattr(candidate, name) for name in shown} for candidate in found.trace],
    }


def _number(call: Call, name: str, default: int, most: int) -> int:
    text = call.request.args.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise InvalidFields(f"{name}: give a number from 1 to {most}.")
    return int(text)


def main(request: Request) -> Response:
    """The entry point for functions-framework."""
    return endpoints.answer(request)

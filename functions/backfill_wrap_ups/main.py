"""Scheduler, daily: sessions that nobody wrapped up get their `session-ended` event; reservations whose process died are closed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from flask import Request, Response

from common import entitlements, log
from common.db import transaction
from common.events import publish_now, publisher
from common.http import Call, Endpoints
from common.sessions import backfill_sessions

endpoints = Endpoints()


@endpoints.route("POST", "/", gate="internal")
@endpoints.route("POST", "/internal/backfill_wrap_ups", gate="internal")
def backfill(call: Call) -> dict[str, Any]:
    """How many events were published and how many sessions are left, which the next run takes."""
    now = call.at()
    with transaction("sweep") as connection:
        found = backfill_sessions(connection, now=now, quiet=timedelta(minutes=call.config.quiet_minutes))
    publish_now(found.events, publisher(call.config))
    with transaction("sweep") as connection:
        expired = entitlements.expire_reservations(connection, now)
    log.write(
        "wrap-ups backfilled",
        severity="WARNING" if found.left else "INFO",
        published=len(found.events),
        left=found.left,
        expired=expired,
    )
    return {"published": len(found.events), "left": found.left, "expired": expired}


def main(request: Request) -> Response:
    """The entry point for functions-framework."""
    return endpoints.answer(request)

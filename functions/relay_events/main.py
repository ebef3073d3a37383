"""Scheduler, every minute: publishes outbox events that are due and were not published or not consumed."""

from __future__ import annotations

from typing import Any

from flask import Request, Response

from common.events import publisher, relay
from common.http import Call, Endpoints

endpoints = Endpoints()


@endpoints.route("POST", "/", gate="internal")
@endpoints.route("POST", "/internal/relay_events", gate="internal")
def relay_due(call: Call) -> dict[str, Any]:
    """How many events were published."""
    return {"published": relay(publisher(call.config), now=call.at())}


def main(request: Request) -> Response:
    """The entry point for functions-framework."""
    return endpoints.answer(request)

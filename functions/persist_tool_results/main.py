"""Pub/Sub `tool-results`: writes the snapshot rows of a turn's tool results."""

from __future__ import annotations

from flask import Request, Response

from common.events import consume_push
from common.http import Call, Endpoints
from common.memory.snapshots import persist_snapshots

endpoints = Endpoints()


@endpoints.route("POST", "/", gate="internal")
@endpoints.route("POST", "/internal/persist_tool_results", gate="internal")
def persist(call: Call) -> dict[str, str]:
    """What became of the event. Anything but an error acknowledges it."""
    return consume_push(call.body, persist_snapshots, now=call.now)


def main(request: Request) -> Response:
    """The entry point for functions-framework."""
    return endpoints.answer(request)

"""Pub/Sub `session-ended`: ends the session if it is over and writes its wrap-up."""

from __future__ import annotations

from flask import Request, Response

from common import auth, db
from common.events import receive_push
from common.http import Call, Endpoints
from common.llm import call as llm
from common.memory.wrap_up_writing import wrap_up_session
from common.warm_up import in_each_worker

endpoints = Endpoints()
in_each_worker(auth.preload, db.preload, llm.preload)


@endpoints.route("POST", "/", gate="internal")
@endpoints.route("POST", "/internal/generate_wrap_up", gate="internal")
def generate(call: Call) -> dict[str, str]:
    """What became of the event. Anything but an error acknowledges it."""
    now = call.at()
    return receive_push(call.body, lambda event: wrap_up_session(event, config=call.config, now=now))


def main(request: Request) -> Response:
    """The entry point for functions-framework."""
    return endpoints.answer(request)

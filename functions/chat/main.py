"""`POST /chat`: one turn, streamed as server-sent events or given as one JSON document."""

from __future__ import annotations

from collections.abc import Iterator

from flask import Request, Response

from common import auth, clock, db, erasure_ledger, events
from common.advisor import turn
from common.advisor.events import Finished, TurnEvent
from common.advisor.request import read_turn_request
from common.conversations import BegunTurn, Replay
from common.http import Call, Endpoints, event_stream, json_response
from common.llm import call as llm
from common.streaming import Background
from common.turns.finish import renew_lease
from common.ui_stream import HEADERS, replayed_stream, ui_stream
from common.warm_up import in_each_worker

endpoints = Endpoints()
in_each_worker(auth.preload, db.preload, erasure_ledger.ledger, llm.preload, events.publisher)


@endpoints.route("POST", "/chat", gate="customer")
def chat(call: Call) -> Response:
    """The answer to one message of the customer's."""
    request = read_turn_request(call.body)
    as_json = (
        call.request.accept_mimetypes.best_match(["text/event-stream", "application/json"])
        == "application/json"
    )
    begun = turn.begin(call.customer, request, config=call.config, now=call.now)
    if isinstance(begun, Replay):
        answer = turn.replay(call.customer, begun, config=call.config, now=call.now)
        return json_response(answer) if as_json else event_stream(replayed_stream(answer), HEADERS)
    running, charge = begun

    def renew() -> bool:
        with db.user_transaction(running.account.user_id) as connection:
            return renew_lease(connection, running, now=clock.now())

    turn_events = Background(
        lambda cancelled: turn.run(running, charge, config=call.config, clock=clock.now, cancelled=cancelled),
        on_heartbeat=renew,
    )
    if as_json:
        return turn_document(turn_events)
    return event_stream(turn_stream(turn_events, running), HEADERS)


def turn_document(events: Background[TurnEvent]) -> Response:
    """The whole turn as one document; the problem instead when nothing was said."""
    with events:
        last = [event for event in events if isinstance(event, Finished)][-1]
    if last.error is not None and last.answer["status"] == "failed":
        raise last.error
    return json_response(last.answer)


def turn_stream(events: Background[TurnEvent], running: BegunTurn) -> Iterator[str]:
    """The turn's server-sent events. The turn runs before the first of them is sent, so that one whose client left at once ends too."""
    with events:
        yield from ui_stream(
            events,
            message_id=running.assistant_message_id,
            conversation_id=running.conversation_id,
            turn_id=running.turn_id,
        )


def main(request: Request) -> Response:
    """The entry point for functions-framework."""
    return endpoints.answer(request)

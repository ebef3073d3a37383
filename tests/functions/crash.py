"""One turn and its consumer in a process of their own that kills itself (SIGKILL) at a named step. Run by `test_crashes.py`.

Usage: python -m tests.functions.crash STEP TOKEN, with the settings in the environment.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import functions_framework
from werkzeug.test import Client

from common import events
from common.advisor import answering, turn
from common.llm import call as llm
from common.llm.types import ToolCall
from local.app import FUNCTIONS
from tests.functions.scripted import ScriptedModel


def die(*_arguments: Any, **_more: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying_after(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **more: Any) -> Any:
        function(*arguments, **more)
        die()

    return call


class Publisher:
    """Delivers at once, as a fast topic would; the consumer runs in this process too."""

    def __init__(self) -> None:
        self.deliver: Callable[[events.Event], None] = lambda event: None

    def publish(self, sent: Any) -> None:
        for event in sent:
            self.deliver(event)


def main(step: str, token: str, internal: str) -> None:
    publisher = Publisher()
    events.publisher = lambda _config: publisher  # type: ignore[assignment]
    calls = [ToolCall("call-1", "query_site_data", {"target": "memberships"})]
    last: list[Any] = ["You have ", "two plans."]
    if step == "mid_stream":
        last.insert(1, die)
    model = ScriptedModel(calls, last)
    llm._provider = lambda _name, _config: model  # type: ignore[assignment]

    if step == "received":
        turn.begin = die  # type: ignore[assignment]
    elif step == "begun":
        turn.run = die  # type: ignore[assignment]
    elif step == "before_the_first_commit":
        turn.find = dying_after(turn.find)
    elif step == "tool_ran":
        answering.run_tool = dying_after(answering.run_tool)
    elif step == "before_the_last_statement":
        turn.finish_turn = die
    elif (
        step == "before_the_last_commit"
    ):  # no commit goes with a statement: as of a turn that writes more beside its answer
        turn.db.commit_with_next = lambda _connection: None
        turn.finish_turn = dying_after(turn.finish_turn)
    elif step == "before_publishing":
        events.publish_now = die  # type: ignore[assignment]

    chat = Client(functions_framework.create_app("main", str(FUNCTIONS / "chat" / "main.py")))
    consumer = Client(
        functions_framework.create_app("main", str(FUNCTIONS / "persist_tool_results" / "main.py"))
    )

    def deliver(event: events.Event) -> None:
        if step == "consumer_before_its_effect":
            events.consume_push.__globals__["consume"] = dying_in_effect
        consumer.post("/", json=events.write_push(event), headers={"Authorization": f"Bearer {internal}"})
        if step == "consumer_done":
            die()

    real_consume = events.consume

    def dying_in_effect(event: events.Event, effect: Any, **more: Any) -> str:
        return real_consume(event, die, **more)

    publisher.deliver = deliver
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
    chat.post("/chat", json={"message": "plans?", "turn_id": "t1"}, headers=headers)


if __name__ == "__main__":
    main(*sys.argv[1:])

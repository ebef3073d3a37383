"""A second instance of `chat`, in a process of its own, on the database that the environment names. Run by `test_remembering.py`.

It reads one request a line (JSON: a chat body with its token, or a message to delete) and prints one line for it, marked `RESULT`: what the
model was sent, and whether this process still had the conversation's history.
"""

from __future__ import annotations

import json
import sys
import uuid
from typing import Any

import functions_framework
from werkzeug.test import Client

from common import conversations, db, events
from common.advisor import context
from common.llm import call as llm
from common.memory import short_term
from local.app import FUNCTIONS
from tests.functions.scripted import ScriptedModel


class NoPublisher:
    def publish(self, sent: Any) -> None:
        pass


def answered(result: dict[str, Any]) -> None:
    sys.stdout.write(f"RESULT {json.dumps(result)}\n")
    sys.stdout.flush()


def main() -> None:
    events.publisher = lambda _config: NoPublisher()
    model = ScriptedModel(["Answer of the other instance."])
    llm._provider = lambda _name, _config: model  # type: ignore[assignment]
    hits: list[bool] = []

    def recent_messages(*arguments: Any) -> Any:
        found = short_term.recent_messages(*arguments)
        hits.append(found is not None)
        return found

    context.short_term = type("Watched", (), {"recent_messages": staticmethod(recent_messages)})  # type: ignore[assignment]
    client = Client(functions_framework.create_app("main", str(FUNCTIONS / "chat" / "main.py")))
    for line in sys.stdin:
        asked = json.loads(line)
        if "delete" in asked:
            with db.user_transaction(uuid.UUID(asked["user_id"])) as connection:
                conversations.delete_message(
                    connection, uuid.UUID(asked["user_id"]), uuid.UUID(asked["delete"])
                )
            answered({})
            continue
        headers = {"Authorization": f"Bearer {asked['token']}", "Accept": "application/json"}
        answer = client.post("/chat", json=asked["body"], headers=headers).json
        sent = [m.text for m in model.requests[-1].messages]
        answered({"answer": answer, "sent": sent, "hit": hits[-1]})


if __name__ == "__main__":
    main()

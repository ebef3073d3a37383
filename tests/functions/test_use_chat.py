"""What `useChat` sends by default, and what its users do with it: two chats, another answer, messages of other kinds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.functions.conftest import System
from tests.functions.scripted import play


def send(
    system: System, chat: str, message: str, text: str, *, before: list[Any] | None = None, **more: Any
) -> Any:
    asked = {"id": message, "role": "user", "parts": [{"type": "text", "text": text}]}
    body = {"id": chat, "messages": [*(before or []), asked], "trigger": "submit-message", **more}
    headers = {**system.token(system.owner), "Accept": "application/json"}
    return system.client("chat").post("/chat", json=body, headers=headers)


def test_a_message_id_of_another_chat_is_refused(system: System) -> None:
    first = send(system, "chat-a", "m1", "Hello").json
    second = send(system, "chat-b", "m2", "Hello").json
    assert first["conversation_id"] != second["conversation_id"]
    assert send(system, "chat-b", "m1", "Hello").status_code == 422
    assert send(system, "chat-new", "m1", "Hello").status_code == 422
    assert send(system, "chat-a", "m1", "Hello").json["message_id"] == first["message_id"]


def test_each_request_for_another_answer_gets_one(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, ["One."], ["Two."], ["Three."])
    assert send(system, "chat", "m", "What do you think?").json["text"] == "One."
    for answer in ("Two.", "Three."):
        assert (
            send(system, "chat", "m", "What do you think?", trigger="regenerate-message").json["text"]
            == answer
        )
    current = "select text from messages where role = 'assistant' and superseded_at is null"
    assert system.database.rows(current) == [("Three.",)]


def test_a_repeat_that_names_the_answer_it_replaces_is_replayed(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = play(monkeypatch, ["One."], ["Two."])
    first = send(system, "chat", "m", "What do you think?").json
    named = {"trigger": "regenerate-message", "messageId": first["message_id"]}
    assert send(system, "chat", "m", "What do you think?", **named).json["text"] == "Two."
    assert send(system, "chat", "m", "What do you think?", **named).json["text"] == "Two."
    assert len(model.requests) == 2


def test_only_the_users_last_message_is_read(system: System) -> None:
    before = [
        {"id": "1", "role": "tool", "parts": None},
        {"id": "", "role": "assistant", "parts": [{"type": "tool-x", "text": None, "output": {"a": [1]}}]},
        {"id": "x" * 300, "role": "user", "parts": [{"type": "text", "text": "y" * 9000}]},
        "not a message",
    ]
    answer = send(system, "chat", "m", "Hello", before=before)
    assert answer.status_code == 200
    assert system.database.rows("select text from messages where role = 'user'") == [("Hello",)]


def test_a_file_beside_the_text_is_not_read(system: System) -> None:
    parts = [{"type": "file", "mediaType": "image/png", "url": "data:,"}, {"type": "text", "text": "Hello"}]
    body = {"id": "chat", "messages": [{"id": "m", "role": "user", "parts": parts}]}
    headers = {**system.token(system.owner), "Accept": "application/json"}
    assert system.client("chat").post("/chat", json=body, headers=headers).status_code == 200

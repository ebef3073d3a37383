"""What `useChat` sends by default, and what its users do with it: two chats, another answer, messages of other kinds."""

from __future__ import annotations

from typing import Any

import pytest

from common.llm.types import ProviderError
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


def standing(system: System) -> list[tuple[str, ...]]:
    """What stands in the conversation, in its order."""
    return system.database.rows(
        "select role, text from messages where superseded_at is null order by position"
    )


def test_an_edited_message_is_answered_anew_and_what_followed_is_superseded(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = play(monkeypatch, ["One."], ["Two."], ["Three."], ["Four."], ["Five."])
    send(system, "chat", "m1", "What do you think of tea?")
    send(system, "chat", "m2", "And what of coffee?")
    edited = send(system, "chat", "m1", "What do you think of milk?", messageId="m1")
    assert (edited.status_code, edited.json["text"]) == (200, "Three.")
    assert standing(system) == [("user", "What do you think of milk?"), ("assistant", "Three.")]
    # Nothing of what was replaced is put before the model again, and the chat goes on from the edit.
    assert "tea" not in str(model.requests[2].messages)
    send(system, "chat", "m3", "And what of water?")
    heard = str(model.requests[3].messages)
    assert "milk" in heard
    assert "tea" not in heard
    assert "coffee" not in heard
    # Back to the first text: an edit like any other, no repeat of the first turn.
    assert send(system, "chat", "m1", "What do you think of tea?", messageId="m1").json["text"] == "Five."
    assert standing(system) == [("user", "What do you think of tea?"), ("assistant", "Five.")]


def test_an_earlier_message_is_answered_again_by_its_id(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = play(monkeypatch, ["One."], ["Two."], ["Three."])
    send(system, "chat", "m1", "What do you think of tea?")
    send(system, "chat", "m2", "And what of coffee?")
    again = {"trigger": "regenerate-message", "messageId": "m1"}
    assert send(system, "chat", "m1", "What do you think of tea?", **again).json["text"] == "Three."
    assert standing(system) == [("user", "What do you think of tea?"), ("assistant", "Three.")]
    assert "coffee" not in str(model.requests[2].messages)


def test_a_message_that_is_sent_under_its_own_id_for_the_first_time_is_a_turn_like_any_other(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, ["One."], ["Two."])
    assert send(system, "chat", "m1", "What do you think?", messageId="m1").json["text"] == "One."
    assert send(system, "chat", "m1", "What do you think?", messageId="m1").json["text"] == "Two."
    assert standing(system) == [("user", "What do you think?"), ("assistant", "Two.")]


def test_our_own_body_names_the_message_it_replaces(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    model = play(monkeypatch, ["One."], ["Two."], ["Three."])
    first = system.chat("What do you think of tea?").json
    talk = {"conversation_id": first["conversation_id"]}
    message = str(system.database.scalar("select id from messages where role = 'user'"))
    again = system.chat("What do you think of tea?", **talk, replaces=message, turn_id="t2").json
    assert again["text"] == "Two."
    assert system.chat("What do you think of tea?", **talk, replaces=message, turn_id="t2").json == again
    assert system.chat("And of milk?", **talk, replaces=message).json["text"] == "Three."
    assert standing(system) == [("user", "And of milk?"), ("assistant", "Three.")]
    assert len(model.requests) == 3
    gone = system.chat("And of water?", **talk, replaces=message)
    assert (gone.status_code, gone.json["detail"]) == (404, "There is no message to answer again.")
    theirs = system.chat("And of water?", replaces=message, person=system.other)
    assert theirs.status_code == 404


def test_an_edit_whose_turn_fails_can_be_tried_again(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ProviderError("no route to the model")

    play(monkeypatch, ["One."], [fail], ["Two."])
    first = system.chat("What do you think of tea?").json
    message = str(system.database.scalar("select id from messages where role = 'user'"))
    edit = {"conversation_id": first["conversation_id"], "replaces": message, "turn_id": "t2"}
    assert system.chat("And of milk?", **edit).status_code == 503
    assert standing(system) == [("user", "And of milk?")]
    assert system.chat("And of milk?", **edit).json["text"] == "Two."
    assert standing(system) == [("user", "And of milk?"), ("assistant", "Two.")]


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

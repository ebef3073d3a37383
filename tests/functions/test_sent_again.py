"""A turn that failed is sent again, whatever became of its message and its session meanwhile."""

from __future__ import annotations

import uuid

import pytest

from common import clock, conversations, db, sessions
from common.llm.types import ProviderError
from tests.functions.conftest import System
from tests.functions.scripted import play


def fail() -> None:
    raise ProviderError("gone")


@pytest.mark.parametrize("edits", [False, True], ids=["new", "edited"])
@pytest.mark.parametrize("ended", [False, True], ids=["open", "ended"])
@pytest.mark.parametrize("deleted", [False, True], ids=["kept", "deleted"])
def test_a_failed_turn_that_is_sent_again_is_one_question_with_its_answer_after_it(
    system: System, monkeypatch: pytest.MonkeyPatch, edits: bool, ended: bool, deleted: bool
) -> None:
    database, user_id = system.database, system.owner.user_id
    play(monkeypatch, ["One."])
    first = system.chat("What do you think?").json
    conversation = uuid.UUID(first["conversation_id"])
    question = database.scalar("select id from messages where role = 'user'")
    asked = {"message": "And what else?", "turn_id": "t", "conversation_id": str(conversation)}
    asked |= {"replaces": str(question)} if edits else {}
    play(monkeypatch, [fail])
    assert system.chat(**asked).status_code == 503
    with db.user_transaction(user_id) as connection:
        if deleted:
            own = database.scalar("select id from messages where text = 'And what else?'")
            conversations.delete_message(connection, user_id, own)  # type: ignore[arg-type]
        if ended:
            sessions.end_session(connection, user_id=user_id, conversation_id=conversation, now=clock.now())
    model = play(monkeypatch, ["Two."])
    answer = system.chat(**asked)
    if edits and deleted:  # what was to be replaced has been, and what replaced it is gone
        assert answer.status_code == 404
        return
    assert answer.json["status"] == "complete"
    assert (answer.json["session_id"] != first["session_id"]) is ended
    current = "select text from messages where superseded_at is null order by position"
    before = [] if edits else ["What do you think?", "One."]
    assert [row.text for row in database.rows(current)] == [*before, "And what else?", "Two."]
    said = [message.text for message in model.requests[-1].messages]
    assert len(said) == len(before) + 1
    assert said[-1] == "And what else?"
    assert system.chat("So?", conversation_id=str(conversation)).status_code == 200
    assert len(model.requests[-1].messages) == len(before) + 3
    spread = "select max(position) <= max(version) as within from messages m join conversations c on c.id = m.conversation_id"
    assert database.scalar(spread) is True

"""A session is wrapped up once it has ended, and the next one opens with it."""

from __future__ import annotations

from tests.e2e.conftest import Running
from tests.e2e.test_run import SECOND, until

PLAN = "Let's go with the annual discount campaign of twenty percent for the Starter Pack, starting on the first of next month."


def test_the_next_session_knows_what_was_decided(running: Running) -> None:
    token = running.token("owner@demo.example")
    first = running.chat(PLAN, token=token, end_session=True)
    logs = until(lambda: running.call("GET", "/v1/session-logs", token=token)[1]["items"])
    assert "discount campaign" in str(logs[0]["decisions"])
    second = running.chat("How did the discount campaign go?", token=token)
    assert second["conversation_id"] != first["conversation_id"]
    assert second["recalled"]["wrap_ups"] == [logs[0]["id"]]
    assert "discount" in second["text"].lower()
    assert "20" in second["text"], "it says when that was"


def test_someone_with_nothing_stored_gets_nothing_invented(running: Running) -> None:
    answer = running.chat("What did we decide last time?", token=running.token(SECOND))
    assert answer["recalled"] == {"snapshots": [], "wrap_ups": []}
    assert "nothing" in answer["text"].lower(), answer["text"]

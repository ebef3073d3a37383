"""One turn over HTTP."""

from __future__ import annotations

from tests.functions.conftest import System, parts


def test_a_turn_is_answered_and_stored(system: System) -> None:
    response = system.chat("Hello there")
    assert response.status_code == 200, response.text
    answer = response.json
    assert answer["status"] == "complete"
    assert answer["text"]
    assert answer["provider"] == "offline"
    stored = system.database.rows("select role, text, status from messages order by position")
    assert [tuple(row) for row in stored] == [
        ("user", "Hello there", "complete"),
        ("assistant", answer["text"], "complete"),
    ]


def test_a_streamed_turn_has_the_parts_of_the_protocol_in_order(system: System) -> None:
    kinds = [part["type"] for part in parts(system.chat("Hello there", stream=True))]
    assert kinds[:4] == ["start", "data-route", "data-recall", "start-step"]
    assert kinds[-2:] == ["finish-step", "finish"]
    assert "text-delta" in kinds

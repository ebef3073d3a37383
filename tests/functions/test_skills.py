"""High confidence goes to a skill: its own tools, nothing that was said before, and one answer whoever gives it in the end."""

from __future__ import annotations

import pytest

from common.llm.types import ToolCall
from tests.functions.conftest import System, parts
from tests.functions.scripted import play
from tests.functions.site import load_small_site

QUESTION = "How many active members do I have?"
TREND = ToolCall("call-1", "query_kpi_trend", {"metric": "active_members"})


def test_a_clear_question_is_answered_by_a_skill_with_its_own_tools_alone(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_small_site(system.database, system.owner)
    conversation = system.chat("The canary sings: I sell courses, what shall I do?").json["conversation_id"]
    model = play(monkeypatch, [TREND], ["Four."])
    answer = system.chat(QUESTION, conversation_id=conversation).json
    assert (answer["route"]["name"], answer["route"]["confidence"], answer["text"]) == (
        "kpi",
        "high",
        "Four.",
    )
    first = model.requests[0]
    assert first.task == "skill"
    assert [section.name for section in first.system] == ["skill", "today"]
    assert [tool.name for tool in first.tools] == ["query_kpi_trend", "hand_over"]
    assert [message.text for message in first.messages] == [QUESTION]
    assert "canary" not in str(model.requests)
    system.deliver_all()
    assert (
        system.database.scalar(
            "select count(*) from message_tool_results where tool_name = 'query_kpi_trend'"
        )
        == 1
    )
    assert [row.kind for row in system.database.rows("select kind from usage_charges order by created_at desc limit 2")] == [
        "skill", "skill",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "first_try",
    [
        ["Secret first try. ", ToolCall("h", "hand_over", {"reason": "needs_advice"})],
        ["A number out of thin air: 23."],
        [ToolCall("h", "hand_over", {"reason": "made up\nby the model"})],
    ],
    ids=["asked for", "answered without looking", "a reason of its own"],
)
def test_a_skill_hands_over_within_the_turn_and_shows_nothing_of_its_try(
    system: System,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    first_try: list[object],
) -> None:
    load_small_site(system.database, system.owner)
    model = play(monkeypatch, first_try, ["The advisor's answer."])  # type: ignore[arg-type]
    streamed = parts(system.chat(QUESTION, stream=True, turn_id="t1"))
    assert [m.task for m in model.requests] == ["skill", "chat"]
    said = "".join(p["delta"] for p in streamed if p["type"] == "text-delta")
    assert said == "The advisor's answer."
    routes = [p["data"] for p in streamed if p["type"] == "data-route"]
    assert [route["name"] for route in routes] == ["advisor"]
    assert any(reason.startswith("handover:kpi:") for reason in routes[0]["reasons"])
    assert not any(p["type"].startswith("tool-") for p in streamed)
    log = capsys.readouterr().out
    assert '"event": "route_handovers_total"' in log
    assert "made up" not in log
    rows = system.database.rows("select kind, state from usage_charges order by created_at")
    assert [tuple(row) for row in rows] == [("skill", "settled"), ("chat", "settled")]
    assert system.database.scalar("select count(*) from messages where role = 'assistant'") == 1


def test_a_half_that_a_skill_has_no_data_for_is_named(system: System) -> None:
    load_small_site(system.database, system.owner)
    answer = system.chat("How many active members do I have and what is the weather in Ulm?").json
    assert "4" in answer["text"]
    assert "weather" in answer["text"].lower(), answer["text"]


def test_a_question_that_refers_to_earlier_talk_goes_to_the_advisor(system: System) -> None:
    load_small_site(system.database, system.owner)
    answer = system.chat("How many active members do I have compared to the number you showed me?").json
    assert answer["route"]["name"] == "advisor"
    assert any(reason.startswith("reference:") for reason in answer["route"]["reasons"])

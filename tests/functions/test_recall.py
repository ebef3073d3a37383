"""A later question about what was shown is answered from the snapshots, with their date."""

from __future__ import annotations

import pytest

from common.config import settings
from common.llm.types import ToolCall
from tests.functions.conftest import System
from tests.functions.scripted import play
from tests.functions.site import load_small_site

LIST_PLANS = ToolCall("call-1", "query_site_data", {"target": "memberships"})
RECALL = ToolCall("call-9", "recall_prior_tool_result", {"tool_name": "query_site_data"})


def block(prompt: str) -> str:
    start = prompt.index("Previously fetched (this conversation")
    return prompt[start : prompt.index("</data>", start)].strip()


def test_a_later_question_gets_the_block_and_says_as_of_when(system: System) -> None:
    load_small_site(system.database, system.owner)
    first = system.chat("Please list my plans and tell me what you think of them").json
    assert [call["tool_name"] for call in first["tool_calls"]] == ["query_site_data"], first
    system.deliver_all()
    second = system.chat("What plans did you show me?", conversation_id=first["conversation_id"]).json
    assert second["recalled"]["snapshots"], second
    assert "as of 20" in second["text"].lower()
    assert "query_site_data" in second["text"]


@pytest.mark.parametrize("delivered", [False, True], ids=["still in the outbox", "persisted"])
def test_the_last_turns_results_are_recalled_before_and_after_their_event(
    system: System, monkeypatch: pytest.MonkeyPatch, delivered: bool
) -> None:
    load_small_site(system.database, system.owner)
    play(monkeypatch, [LIST_PLANS], ["Two plans."])
    conversation = system.chat("plans?").json["conversation_id"]
    if delivered:
        system.deliver_all()
    model = play(monkeypatch, ["Noted."])
    answer = system.chat("and now?", conversation_id=conversation).json
    assert len(answer["recalled"]["snapshots"]) == 1
    recalled = block(model.prompt)
    assert recalled.splitlines()[0] == "Previously fetched (this conversation, snapshots — not live data):"
    assert answer["recalled"]["snapshots"][0] in recalled
    assert "2 plans, Starter Pack 3 active" in recalled


def test_the_same_call_supersedes_and_shows_what_changed(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_small_site(system.database, system.owner)
    spelled_out = ToolCall("call-2", "query_site_data", {"target": "memberships", "limit": 25})
    other = ToolCall("call-3", "query_site_data", {"target": "members"})
    play(monkeypatch, [LIST_PLANS], ["One."], [spelled_out, other], ["Two."])
    conversation = system.chat("plans?").json["conversation_id"]
    system.deliver_all()
    system.database.run("update message_tool_results set created_at = created_at - interval '3 days'")
    system.database.run("delete from subscriptions where external_id = 's1'")
    system.chat("plans again?", conversation_id=conversation)
    system.deliver_all()
    model = play(monkeypatch, ["Noted."])
    lines = system.chat("well?", conversation_id=conversation).json["recalled"]["snapshots"]
    assert len(lines) == 2, "once each, the newest"
    (plans,) = (line for line in lines if "memberships" in line)
    assert "Starter Pack 2 active (was 3 on 20" in plans
    assert plans in model.prompt


def test_errors_and_acknowledgements_are_stored_and_not_shown(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_small_site(system.database, system.owner)
    brain = ToolCall(
        "b", "update_customer_brain", {"target": "memory", "operation": "append", "content": "I sell courses"}
    )
    wrong = ToolCall("w", "query_kpi_trend", {"metric": "happiness"})
    play(monkeypatch, [brain, wrong], ["Done."])
    conversation = system.chat("Remember that I sell courses").json["conversation_id"]
    system.deliver_all()
    assert system.database.scalar("select count(*) from message_tool_results") == 2
    play(monkeypatch, ["Noted."])
    assert system.chat("well?", conversation_id=conversation).json["recalled"]["snapshots"] == []


def test_reading_a_snapshot_renews_nothing(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    load_small_site(system.database, system.owner)
    play(monkeypatch, [LIST_PLANS], ["One."])
    conversation = system.chat("plans?").json["conversation_id"]
    system.deliver_all()
    before = system.database.rows("select * from message_tool_results")
    play(monkeypatch, [RECALL], ["As of then."])
    for _ in range(3):
        system.chat("what was it?", conversation_id=conversation)
        system.deliver_all()
    after = system.database.rows("select * from message_tool_results where tool_name = 'query_site_data'")
    assert after == before


@pytest.mark.parametrize("delivered", [False, True], ids=["still in the outbox", "persisted"])
def test_another_conversation_recalls_the_whole_result_with_its_date(
    system: System, monkeypatch: pytest.MonkeyPatch, delivered: bool
) -> None:
    load_small_site(system.database, system.owner)
    play(monkeypatch, [LIST_PLANS], ["One."])
    shown = system.chat("plans?").json["tool_calls"][0]["output"]
    if delivered:
        system.deliver_all()
    play(monkeypatch, [RECALL], ["As of then."])
    recalled = system.chat("what did you show me last week?").json["tool_calls"][0]["output"]
    assert recalled["result"] == shown
    assert recalled["fetched_on"].startswith("20")


def test_nobody_elses_results_are_recalled(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    load_small_site(system.database, system.owner)
    play(monkeypatch, [LIST_PLANS], ["One."])
    system.chat("plans?")
    system.deliver_all()
    model = play(monkeypatch, [RECALL], ["Nothing is stored."])
    answer = system.chat("what did you show me?", person=system.other).json
    assert answer["tool_calls"][0]["is_error"]
    assert "Starter Pack" not in str(model.requests)


def test_a_conversation_not_to_be_remembered_leaves_nothing_for_others(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_small_site(system.database, system.owner)
    play(monkeypatch, [LIST_PLANS], ["One."])
    secret = system.chat("plans?", remember=False).json["conversation_id"]
    system.deliver_all()
    play(monkeypatch, [RECALL], ["Well."])
    assert system.chat("what did you show me?").json["tool_calls"][0]["is_error"]
    play(monkeypatch, [RECALL], ["Well."])
    inside = system.chat("what did you show me?", conversation_id=secret).json
    assert not inside["tool_calls"][0]["is_error"]
    assert inside["recalled"]["snapshots"]


def test_with_the_gate_on_only_a_query_that_points_back_gets_the_block(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_small_site(system.database, system.owner)
    play(monkeypatch, [LIST_PLANS], ["One."])
    conversation = system.chat("plans?").json["conversation_id"]
    play(monkeypatch, ["Well."])
    ungated = system.chat("Tell me something about pricing", conversation_id=conversation).json
    assert ungated["recalled"]["snapshots"], "off until the counters justify it"
    monkeypatch.setenv("MEMBERINTEL_RECALL_GATE", "true")
    settings.cache_clear()
    aside = system.chat("What is a good price for a cooking class?", conversation_id=conversation).json
    back = system.chat("What plans did you show me?", conversation_id=conversation).json
    assert aside["recalled"]["snapshots"] == []
    assert len(back["recalled"]["snapshots"]) == 1

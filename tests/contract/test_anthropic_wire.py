"""The Claude provider through the vendor's SDK, against a local server that speaks the Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from common.config import Settings
from common.llm import call
from common.llm.types import (
    Message,
    ModelChoice,
    ModelEvent,
    ModelRequest,
    ProviderError,
    ProviderFailed,
    ProviderOverloaded,
    Section,
    Stop,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from tests.stubs.anthropic_server import Reply, Scripted, api_error, cut, message, scripted, stream_error

HAIKU = ModelChoice("claude", "claude-haiku-5-5")
SONNET = ModelChoice("claude", "claude-sonnet-5-5")
OTHER = ModelChoice("claude", "claude-haiku-4-5")
KPI = ToolSpec(
    "query_kpi_trend", "A metric.", {"type": "object", "properties": {"metric": {"type": "string"}}}
)
PLAN = ToolSpec("query_site_data", "Lists.", {"type": "object", "properties": {"target": {"type": "string"}}})
SYSTEM = (
    Section("base", "You advise.", stable=True),
    Section("wrap_ups", "Session of 2026-05-12: …", stable=True),
    Section("today", "Today is 2026-05-13."),
)
ASK = ModelRequest("chat", SYSTEM, (Message("user", "How many members?"),), (KPI, PLAN))


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def tool_use(number: int, name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted() as running:
        yield running


def settings(server: Scripted, **more: Any) -> Settings:
    return Settings(anthropic_api_key="sk-test", anthropic_base_url=server.url, **more)


def run(
    server: Scripted,
    request: ModelRequest = ASK,
    choice: ModelChoice = HAIKU,
    fallback: ModelChoice | None = None,
    waits: list[float] | None = None,
) -> list[ModelEvent]:
    slept = waits if waits is not None else []
    return list(call.stream(request, choice, fallback, config=settings(server), sleep=slept.append))


def said(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def stop_of(events: list[ModelEvent]) -> Stop:
    assert isinstance(events[-1], Stop)
    return events[-1]


def test_text_streams_in_deltas_and_ends_with_a_priced_stop(server: Scripted) -> None:
    used = {"input_tokens": 1000, "output_tokens": 200, "cache_read_input_tokens": 3000, "cache_creation_input_tokens": 500}  # fmt: skip
    server.play(message(text("You have 128 members."), usage=used))
    events = run(server)
    assert said(events) == "You have 128 members."
    assert sum(isinstance(event, TextDelta) for event in events) == 4
    assert stop_of(events) == Stop(
        "end", "claude-haiku-5-5", "claude", Usage(1000, 200, 3000, 500), Decimal("0.0002925")
    )


def test_the_key_goes_out_and_no_sampling_parameter_does(server: Scripted) -> None:
    server.play(message(text("Hi")))
    run(server)
    assert server.paths == ["/v1/messages"]
    assert any("sk-test" in value for value in server.headers[0].values())
    assert not {"temperature", "top_p", "top_k"} & server.bodies[0].keys()
    assert server.bodies[0]["stream"] is True


def test_parallel_tool_calls_come_whole_and_their_results_go_back_in_one_message(server: Scripted) -> None:
    server.play(
        message(
            text("I look."),
            tool_use(1, "query_kpi_trend", metric="mrr"),
            tool_use(2, "query_site_data", target="memberships"),
            stop="tool_use",
        )
    )
    events = run(server)
    calls = tuple(event for event in events if isinstance(event, ToolCall))
    assert [(c.id, c.name, c.input) for c in calls] == [
        ("toolu_1", "query_kpi_trend", {"metric": "mrr"}),
        ("toolu_2", "query_site_data", {"target": "memberships"}),
    ]
    assert stop_of(events).reason == "tool_use"

    results = (ToolResult("toolu_1", "{}"), ToolResult("toolu_2", "no such plan", is_error=True))
    history = (*ASK.messages, Message("assistant", "I look.", calls), Message("user", results=results))
    server.play(message(text("Done.")))
    run(server, ModelRequest("chat", SYSTEM, history, ASK.tools))
    sent = server.bodies[-1]["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "user"]
    assert [b["type"] for b in sent[1]["content"]] == ["text", "tool_use", "tool_use"]
    assert [(b["tool_use_id"], b["is_error"]) for b in sent[2]["content"]] == [("toolu_1", False), ("toolu_2", True)]  # fmt: skip


def test_reasoning_goes_back_unchanged_to_the_model_that_made_it_and_to_no_other(server: Scripted) -> None:
    thinking = {"type": "thinking", "thinking": "Look it up.", "signature": "c2ln"}
    asked = tool_use(1, "query_kpi_trend", metric="mrr")
    server.play(message(thinking, asked, stop="tool_use"))
    (made,) = [event for event in run(server, choice=SONNET) if isinstance(event, ToolCall)]
    history = (*ASK.messages, Message("assistant", calls=(made,)), Message("user", results=(ToolResult("toolu_1", "{}"),)))  # fmt: skip
    followed = ModelRequest("chat", SYSTEM, history, ASK.tools)
    server.play(message(text("Done.")))
    run(server, followed, SONNET)
    assert server.bodies[-1]["messages"][1]["content"] == [thinking, asked]
    run(server, followed, HAIKU)
    assert server.bodies[-1]["messages"][1]["content"] == [asked]


def test_a_paused_turn_is_continued_with_its_content_and_its_usage_added(server: Scripted) -> None:
    server.play(message(text("Part one,"), stop="pause_turn"), message(text(" part two.")))
    events = run(server)
    assert said(events) == "Part one, part two."
    assert stop_of(events).usage == Usage(200, 40)
    assert server.bodies[1]["messages"][-1] == {"role": "assistant", "content": [text("Part one,")]}


def test_a_turn_that_never_stops_pausing_is_cut(server: Scripted) -> None:
    server.play(message(text("…"), stop="pause_turn"))
    assert stop_of(run(server)).reason == "max_tokens"
    assert len(server.bodies) == 4


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("max_tokens", "max_tokens"),
        ("refusal", "refusal"),
        ("model_context_window_exceeded", "context_full"),
        ("something_new", "end"),
    ],
)
def test_every_stop_reason_is_told_apart(server: Scripted, stop: str, reason: str) -> None:
    server.play(message(text("Hm"), stop=stop))
    assert stop_of(run(server)).reason == reason


def test_a_tool_call_cut_by_the_token_limit_is_dropped(server: Scripted) -> None:
    half = {"type": "tool_use", "id": "toolu_1", "name": "query_kpi_trend", "partial": '{"metric": "m'}
    server.play(message(text("I look."), half, stop="max_tokens"))
    events = run(server)
    assert not [event for event in events if isinstance(event, ToolCall)]
    assert stop_of(events).reason == "max_tokens"


def test_usage_in_the_last_event_is_the_total_not_an_addition(server: Scripted) -> None:
    server.play(message(text("Hi"), usage={"input_tokens": 70, "output_tokens": 9}))
    assert stop_of(run(server)).usage == Usage(70, 9)


@pytest.mark.parametrize(
    "failure",
    [
        api_error(529, "overloaded_error"),
        api_error(429, "rate_limit_error"),
        api_error(500, "api_error"),
        stream_error("overloaded_error"),
        cut(),
    ],
)
def test_overload_before_the_first_token_is_tried_again(server: Scripted, failure: Any) -> None:
    server.play(failure, message(text("Here.")))
    waits: list[float] = []
    events = run(server, waits=waits)
    assert said(events) == "Here."
    assert len(waits) == 1
    assert 0.25 <= waits[0] <= 0.75


def test_after_two_retries_the_fallback_answers_and_is_named(server: Scripted) -> None:
    server.play(*[api_error(529, "overloaded_error")] * 3, message(text("Here."), model="claude-haiku-4-5"))
    events = run(server, fallback=OTHER)
    assert [body["model"] for body in server.bodies] == ["claude-haiku-5-5"] * 3 + ["claude-haiku-4-5"]
    stop = stop_of(events)
    assert stop.model == "claude-haiku-4-5"
    assert stop.cost_usd == Decimal("0.0002")


@pytest.mark.parametrize(
    "failure", [stream_error("overloaded_error", text("You have")), cut(text("You have"))]
)
def test_a_break_after_the_first_token_ends_the_call_with_what_was_used(
    server: Scripted, failure: Any
) -> None:
    server.play(failure, message(text("never asked")))
    events = call.stream(ASK, HAIKU, OTHER, config=settings(server), sleep=lambda _: None)
    got = [next(events), next(events)]
    with pytest.raises(ProviderOverloaded) as broken:
        next(events)
    assert said(got) == "You have"
    assert broken.value.usage == Usage(100, 2)
    assert broken.value.cost_usd == Decimal("0.000011")
    assert broken.value.choice == HAIKU
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (401, "authentication_error"), (404, "not_found_error")],
)
def test_a_refused_request_is_not_tried_again(server: Scripted, status: int, kind: str) -> None:
    server.play(api_error(status, kind))
    with pytest.raises(ProviderFailed) as refused:
        run(server, fallback=OTHER)
    assert kind in str(refused.value)
    assert len(server.bodies) == 1


def test_no_server_at_all_is_an_overload(server: Scripted) -> None:
    config = Settings(anthropic_api_key="sk-test", anthropic_base_url="http://127.0.0.1:9")
    with pytest.raises(ProviderError):
        list(call.stream(ASK, HAIKU, None, config=config, sleep=lambda _: None))


def test_a_json_schema_is_sent_closed(server: Scripted) -> None:
    schema = {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "object", "properties": {}}}}}  # fmt: skip
    server.play(message(text('{"items": []}')))
    run(server, ModelRequest("wrap_up", SYSTEM, ASK.messages, schema=schema))
    sent = server.bodies[0]["output_config"]["format"]
    assert sent["type"] == "json_schema"
    assert sent["schema"]["additionalProperties"] is False
    assert sent["schema"]["properties"]["items"]["items"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("choice", "thinking"),
    [(SONNET, {"type": "between_tools"}), (HAIKU, {"type": "disabled"}), (OTHER, None)],
)
def test_reasoning_is_turned_as_low_as_the_model_allows(
    server: Scripted, choice: ModelChoice, thinking: dict[str, str] | None
) -> None:
    server.play(message(text("Hi")))
    run(server, choice=choice)
    assert server.bodies[0].get("thinking") == thinking


def prefix(raw: bytes) -> str:
    """The bytes that the cache sees up to the mark behind the system prompt: tools, then system, as they were sent."""
    body = json.loads(raw)
    marked = max(i for i, block in enumerate(body["system"]) if "cache_control" in block)
    return json.dumps([body["tools"], body["system"][: marked + 1]])


def test_two_turns_of_a_user_share_the_cached_prefix_byte_for_byte(server: Scripted) -> None:
    server.play(message(text("Hi")))
    run(server)
    later = (Section("today", "Today is 2026-05-14."), Section("memory", "- 2026-05-13: prefers tables"))
    history = (*ASK.messages, Message("assistant", "128."), Message("user", "And churn?"))
    run(server, ModelRequest("chat", (*SYSTEM[:2], *later), history, ASK.tools))
    first, second = server.raw
    assert prefix(first) == prefix(second)
    assert [b["text"] for b in server.bodies[0]["system"]] == [s.text for s in SYSTEM]


def test_marks_stand_behind_tools_stable_sections_and_the_last_round_only(server: Scripted) -> None:
    made = ToolCall("toolu_1", "query_kpi_trend", {})
    round_of = (*ASK.messages, Message("assistant", calls=(made,)), Message("user", results=(ToolResult("toolu_1", "{}"),)))  # fmt: skip
    server.play(message(text("Hi")))
    run(server)
    run(server, ModelRequest("chat", SYSTEM, round_of, ASK.tools))
    first, second = server.bodies
    assert [("cache_control" in tool) for tool in second["tools"]] == [False, True]
    assert [("cache_control" in block) for block in second["system"]] == [False, True, False]
    assert "cache_control" in second["messages"][-1]["content"][-1]
    assert json.dumps(first).count("cache_control") == 2
    assert json.dumps(second).count("cache_control") == 3


def test_a_call_that_its_caller_cancels_stops_with_what_was_used(server: Scripted) -> None:
    server.play(message(text("one two three four")))
    seen: list[ModelEvent] = []
    events = call.stream(ASK, HAIKU, None, config=settings(server), cancelled=lambda: len(seen) >= 2)
    for event in events:
        seen.append(event)
    assert said(seen) == "one two"
    assert stop_of(seen).reason == "cancelled"
    assert stop_of(seen).usage.input_tokens == 100


def test_a_silent_server_is_given_up_and_tried_again(server: Scripted) -> None:
    server.play(Reply(hang=True))
    config = Settings(anthropic_api_key="sk-test", anthropic_base_url=server.url, model_timeout_seconds=0.1)
    with pytest.raises(ProviderOverloaded, match="Timeout"):
        list(call.stream(ASK, HAIKU, None, config=config, sleep=lambda _: None))
    assert len(server.bodies) == 3

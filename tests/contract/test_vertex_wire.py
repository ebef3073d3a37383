"""The Gemini provider through the vendor's SDK, against a local server that speaks the Vertex AI API."""

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
from tests.stubs.vertex_server import Reply, Scripted, answer, api_error, blocked, cut, scripted

LITE = ModelChoice("gemini", "gemini-3.5-flash-lite")
FLASH = ModelChoice("gemini", "gemini-3.8-flash")
KPI = ToolSpec(
    "query_kpi_trend", "A metric.", {"type": "object", "properties": {"metric": {"type": "string"}}}
)
SYSTEM = (Section("base", "You advise.", stable=True), Section("today", "Today is 2026-05-13."))
ASK = ModelRequest("chat", SYSTEM, (Message("user", "How many members?"),), (KPI,))


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted() as running:
        yield running


def run(server: Scripted, request: ModelRequest = ASK, choice: ModelChoice = LITE) -> list[ModelEvent]:
    config = Settings(vertex_project="p", vertex_base_url=server.url)
    return list(call.stream(request, choice, None, config=config, sleep=lambda _: None))


def said(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def stop_of(events: list[ModelEvent]) -> Stop:
    assert isinstance(events[-1], Stop)
    return events[-1]


def function_call(name: str, signature: str | None = None, **args: Any) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"name": name, "args": args}}
    return {**part, "thoughtSignature": signature} if signature else part


def test_text_streams_and_ends_with_a_priced_stop(server: Scripted) -> None:
    used = {"promptTokenCount": 1000, "cachedContentTokenCount": 400, "candidatesTokenCount": 50, "thoughtsTokenCount": 30}  # fmt: skip
    server.play(answer({"text": "You have"}, {"text": " 128."}, usage=used))
    events = run(server)
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["You have", " 128."]
    assert stop_of(events) == Stop(
        "end", "gemini-3.5-flash-lite", "gemini", Usage(600, 80, 400), Decimal("0.000392")
    )
    assert (
        server.paths[0]
        .split("?")[0]
        .endswith(
            "/projects/p/locations/global/publishers/google/models/gemini-3.5-flash-lite:streamGenerateContent"
        )
    )


def test_sections_are_sent_in_order_and_reasoning_gets_room_of_its_own(server: Scripted) -> None:
    server.play(answer({"text": "Hi"}))
    run(server, choice=FLASH)
    body = server.bodies[0]
    assert [p["text"] for p in body["systemInstruction"]["parts"]] == [s.text for s in SYSTEM]
    assert body["generationConfig"]["maxOutputTokens"] > ASK.max_output_tokens
    # The SDK leaves this one name in snake case, which the API takes as well.
    assert list(body["generationConfig"]["thinkingConfig"].values()) == ["LOW"]
    assert "temperature" not in body["generationConfig"]


def test_thoughts_are_not_said(server: Scripted) -> None:
    server.play(answer({"text": "The user wants…", "thought": True}, {"text": "128."}))
    assert said(run(server)) == "128."


def test_tool_calls_go_back_with_their_signature_and_results_in_one_content(server: Scripted) -> None:
    first = function_call("query_kpi_trend", "c2lnbmVk", metric="mrr")
    second = function_call("query_kpi_trend", metric="arpu")
    server.play(answer(first, second))
    events = run(server)
    calls = tuple(event for event in events if isinstance(event, ToolCall))
    assert [c.input for c in calls] == [{"metric": "mrr"}, {"metric": "arpu"}]
    assert len({c.id for c in calls}) == 2
    assert stop_of(events).reason == "tool_use"

    results = (ToolResult(calls[0].id, "{}"), ToolResult(calls[1].id, "no", is_error=True))
    history = (*ASK.messages, Message("assistant", calls=calls), Message("user", results=results))
    server.play(answer({"text": "Done."}))
    run(server, ModelRequest("chat", SYSTEM, history, ASK.tools))
    _, called, answered = server.bodies[-1]["contents"]
    assert called["role"] == "model"
    assert [p.get("thoughtSignature") for p in called["parts"]] == ["c2lnbmVk", None]
    assert [p["functionResponse"]["response"] for p in answered["parts"]] == [
        {"output": "{}"},
        {"error": "no"},
    ]
    assert {p["functionResponse"]["name"] for p in answered["parts"]} == {"query_kpi_trend"}


def test_calls_of_another_model_carry_the_documented_stand_in_signature(server: Scripted) -> None:
    foreign = ToolCall("toolu_1", "query_kpi_trend", {}, {"claude": "claude-sonnet-5-5", "content": []})
    history = (*ASK.messages, Message("assistant", calls=(foreign,)), Message("user", results=(ToolResult("toolu_1", "{}"),)))  # fmt: skip
    server.play(answer({"text": "Done."}))
    run(server, ModelRequest("chat", SYSTEM, history, ASK.tools))
    part = server.bodies[-1]["contents"][1]["parts"][0]
    assert part["thoughtSignature"] == "skip_thought_signature_validator"


def test_a_json_schema_is_sent_and_an_open_map_in_it_refused(server: Scripted) -> None:
    schema = {"type": "object", "properties": {"summary": {"type": "string"}}, "additionalProperties": False}
    server.play(answer({"text": '{"summary": "x"}'}))
    events = run(server, ModelRequest("wrap_up", SYSTEM, ASK.messages, schema=schema))
    assert json.loads(said(events)) == {"summary": "x"}
    sent = server.bodies[0]["generationConfig"]
    assert sent["responseMimeType"] == "application/json"
    assert sent["responseJsonSchema"]["properties"] == {"summary": {"type": "string"}}
    opened = {"type": "object", "properties": {"by_name": {"type": "object", "additionalProperties": {}}}}
    with pytest.raises(ValueError, match="by_name"):
        run(server, ModelRequest("wrap_up", SYSTEM, ASK.messages, schema=opened))


def test_reasoning_that_eats_the_budget_is_a_cut_answer_and_is_charged(server: Scripted) -> None:
    used = {"promptTokenCount": 100, "thoughtsTokenCount": 6000}
    server.play(answer(finish="MAX_TOKENS", usage=used))
    events = run(server)
    assert said(events) == ""
    assert stop_of(events).reason == "max_tokens"
    assert stop_of(events).usage == Usage(100, 6000)


@pytest.mark.parametrize("reply", [blocked(), answer(finish="SAFETY"), answer(finish="RECITATION")])
def test_a_blocked_answer_is_a_refusal(server: Scripted, reply: Any) -> None:
    server.play(reply)
    stop = stop_of(run(server))
    assert stop.reason == "refusal"
    assert stop.usage.input_tokens == 100


@pytest.mark.parametrize(
    "failure",
    [api_error(503, "UNAVAILABLE"), api_error(429, "RESOURCE_EXHAUSTED"), cut(), answer(finish="MALFORMED_FUNCTION_CALL")],
)  # fmt: skip
def test_overload_before_the_first_token_is_tried_again(server: Scripted, failure: Any) -> None:
    server.play(failure, answer({"text": "Here."}))
    assert said(run(server)) == "Here."
    assert len(server.bodies) == 2


def test_a_break_after_the_first_token_ends_the_call(server: Scripted) -> None:
    server.play(cut({"text": "You have"}), answer({"text": "never asked"}))
    with pytest.raises(ProviderOverloaded):
        run(server)
    assert len(server.bodies) == 1


def test_a_refused_request_is_not_tried_again(server: Scripted) -> None:
    server.play(api_error(400, "INVALID_ARGUMENT"))
    with pytest.raises(ProviderFailed, match="INVALID_ARGUMENT"):
        run(server)
    assert len(server.bodies) == 1


def test_a_silent_server_is_given_up_and_tried_again(server: Scripted) -> None:
    server.play(Reply(hang=True))
    config = Settings(vertex_project="p", vertex_base_url=server.url, model_timeout_seconds=0.1)
    with pytest.raises(ProviderOverloaded, match="Timeout"):
        list(call.stream(ASK, LITE, None, config=config, sleep=lambda _: None))
    assert len(server.bodies) == 3

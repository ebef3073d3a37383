"""The Messages API's side of the wire: replies as a real server streams them."""

from __future__ import annotations

import json
from typing import Any

from tests.stubs.scripted import Event, Reply, Scripted, scripted

__all__ = ["Reply", "Scripted", "api_error", "cut", "message", "scripted", "stream_error"]


def message(
    *blocks: dict[str, Any],
    stop: str | None = "end_turn",
    model: str = "claude-haiku-5-5",
    usage: dict[str, int] | None = None,
) -> Reply:
    """A whole answer. `usage` is what the last event reports, cumulatively; the first reports one token of output."""
    final = {"input_tokens": 100, "output_tokens": 20, **(usage or {})}
    return Reply((*_opening(blocks, model, final), *_closing(stop, final)))


def cut(*blocks: dict[str, Any], model: str = "claude-haiku-5-5") -> Reply:
    """An answer whose connection breaks after its blocks."""
    return Reply(_opening(blocks, model, {"input_tokens": 100}), cut=True)


def stream_error(kind: str, *blocks: dict[str, Any]) -> Reply:
    """An error that arrives inside a stream of status 200, after some blocks."""
    error = {"type": "error", "error": {"type": kind, "message": kind}}
    return Reply((*_opening(blocks, "claude-haiku-5-5", {"input_tokens": 100}), ("error", error)))


def api_error(status: int, kind: str) -> Reply:
    """An error before the stream."""
    return Reply(status=status, body={"type": "error", "error": {"type": kind, "message": kind}})


def _opening(blocks: tuple[dict[str, Any], ...], model: str, final: dict[str, int]) -> tuple[Event, ...]:
    usage = {**final, "output_tokens": 1}
    start = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    events: list[Event] = [
        ("message_start", {"type": "message_start", "message": start}),
        ("ping", {"type": "ping"}),
    ]
    for index, block in enumerate(blocks):
        events += _block(index, block)
    return tuple(events)


def _block(index: int, block: dict[str, Any]) -> list[Event]:
    empty, deltas = _split(block)
    start = {"type": "content_block_start", "index": index, "content_block": empty}
    stop = {"type": "content_block_stop", "index": index}
    return [
        ("content_block_start", start),
        *(
            ("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})
            for delta in deltas
        ),
        ("content_block_stop", stop),
    ]


def _split(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if block["type"] == "text":
        words = block["text"].split(" ")
        texts = [words[0], *(f" {word}" for word in words[1:])]
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in texts]
    if block["type"] == "thinking":
        return {"type": "thinking", "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    written = block.get("partial") or json.dumps(block["input"])
    half = len(written) // 2
    deltas = [{"type": "input_json_delta", "partial_json": part} for part in (written[:half], written[half:])]
    return {"type": block["type"], "id": block["id"], "name": block["name"], "input": {}}, deltas


def _closing(stop: str | None, usage: dict[str, int]) -> tuple[Event, ...]:
    delta = {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}
    return (("message_delta", delta), ("message_stop", {"type": "message_stop"}))

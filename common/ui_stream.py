"""The AI SDK's UI message stream: a turn's events as the chunks that `useChat` reads."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from common.advisor.events import Finished, Noted, StepFinished, StepStarted, TurnEvent
from common.llm.types import TextDelta, ToolCall
from common.text import to_json
from common.tools.run import Executed

HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
PING = ": ping\n\n"
DONE = "data: [DONE]\n\n"


def encode(chunk: dict[str, Any]) -> str:
    """One chunk as a server-sent event."""
    return f"data: {to_json(chunk)}\n\n"


def ui_stream(
    events: Iterable[TurnEvent | None],
    *,
    message_id: uuid.UUID,
    conversation_id: uuid.UUID,
    turn_id: uuid.UUID,
) -> Iterator[str]:
    """The server-sent events of a running turn, `[DONE]` last; a comment for each None, which fills a silence."""
    ids = {"conversation_id": str(conversation_id), "turn_id": str(turn_id)}
    yield encode({"type": "start", "messageId": str(message_id), "messageMetadata": ids})
    text = _TextPart()
    for event in events:
        if event is None:
            yield PING
        else:
            yield from map(encode, _chunks(event, text))
    yield DONE


def replayed_stream(answer: dict[str, Any]) -> Iterator[str]:
    """The same for a stored answer: everything at once."""
    ids = {"conversation_id": answer["conversation_id"], "turn_id": answer["turn_id"]}
    yield encode(
        {"type": "start", "messageId": answer["message_id"], "messageMetadata": {**ids, "replayed": True}}
    )
    yield encode({"type": "data-route", "data": answer["route"]})
    yield encode({"type": "data-recall", "data": answer["recalled"]})
    yield encode({"type": "start-step"})
    for call in answer["tool_calls"]:
        yield from map(encode, _tool_chunks(call))
    if answer["text"]:
        text = _TextPart()
        yield from map(encode, [*text.say(answer["text"]), *text.end()])
    yield from map(encode, [*_sources(answer), {"type": "finish-step"}])
    yield from map(encode, _ending(answer, answer.get("error")))
    yield DONE


class _TextPart:
    """Text comes in parts with an id each; a part is open from its first delta to the end of its step."""

    def __init__(self) -> None:
        self._number = 0
        self._open = False

    def say(self, delta: str) -> Iterator[dict[str, Any]]:
        if not self._open:
            self._number += 1
            self._open = True
            yield {"type": "text-start", "id": f"text-{self._number}"}
        yield {"type": "text-delta", "id": f"text-{self._number}", "delta": delta}

    def end(self) -> Iterator[dict[str, Any]]:
        if self._open:
            self._open = False
            yield {"type": "text-end", "id": f"text-{self._number}"}


def _chunks(event: TurnEvent, text: _TextPart) -> Iterator[dict[str, Any]]:
    if isinstance(event, Noted):
        yield {"type": f"data-{event.name}", "data": event.data}
    elif isinstance(event, StepStarted):
        yield {"type": "start-step"}
    elif isinstance(event, TextDelta):
        yield from text.say(event.text)
    elif isinstance(event, ToolCall):
        yield from text.end()
        yield {
            "type": "tool-input-available",
            "toolCallId": event.id,
            "toolName": event.name,
            "input": event.input,
        }
    elif isinstance(event, Executed):
        yield _tool_output(event.call.id, event.output, event.is_error)
    elif isinstance(event, StepFinished):
        yield from text.end()
        yield {"type": "finish-step"}
    elif isinstance(event, Finished):
        yield from text.end()
        yield from _sources(event.answer)
        yield from _ending(event.answer, event.error.detail if event.error else None)


def _tool_chunks(call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    ids = {"toolCallId": call["tool_use_id"], "toolName": call["tool_name"]}
    yield {"type": "tool-input-available", **ids, "input": call["input"]}
    yield _tool_output(call["tool_use_id"], call["output"], call["is_error"])


def _tool_output(call_id: str, output: dict[str, Any], is_error: bool) -> dict[str, Any]:
    if is_error:
        return {"type": "tool-output-error", "toolCallId": call_id, "errorText": str(output.get("error", ""))}
    return {"type": "tool-output-available", "toolCallId": call_id, "output": output}


def _sources(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for source in answer["sources"]:
        chunk = {
            "type": "source-document",
            "sourceId": source["entry_id"],
            "mediaType": "text/markdown",
            "title": source["title"],
        }
        yield chunk | {"providerMetadata": {"memberintel": {"n": source["n"], "url": source["url"]}}}


def _ending(answer: dict[str, Any], error: str | None) -> Iterator[dict[str, Any]]:
    """`finish` only for what was stored; the error before it, so that a client never takes a broken answer for a whole one."""
    if error:
        yield {"type": "error", "errorText": error}
    if answer["status"] != "failed":
        metadata = {key: answer[key] for key in ("status", "usage", "model", "provider", "session_id")}
        yield {"type": "finish", "messageMetadata": metadata}

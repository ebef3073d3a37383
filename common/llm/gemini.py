"""Gemini on Vertex AI: the only module that generates with `google.genai`, imported on first use.

Reasoning shares the limit on output, so room for it is added (`prices.REASONING_TOKENS`), and it is turned as low as the model allows
("Developer's guide to Gemini 3.8 Flash", docs.cloud.google.com, read on 2026-11-30). Gemini 3 answers 400 to a function call that
comes back without its signature ("Thought signatures", same place).
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Generator, Iterator
from typing import Any

from common import log
from common.config import Settings
from common.llm.prices import REASONING_TOKENS
from common.llm.types import (
    Message,
    ModelRequest,
    ProviderEvent,
    ProviderFailed,
    ProviderOverloaded,
    Stop,
    StopReason,
    TextDelta,
    ToolCall,
    Usage,
)
from common.once import once

# Flash-Lite reasons least unless told otherwise; 3.8 Flash refuses "minimal".
_REASONING = {"gemini-3.8-flash": "LOW", "gemini-3.5-flash": "LOW"}
_BLOCKED = {
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
}  # fmt: skip
_MISSHAPEN = {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "OTHER"}
_OVERLOADED = {408, 429, 499, 500, 502, 503, 504}
# What the documentation gives for calls that another vendor's model made. It must stand on the wire as it is, and the SDK encodes bytes.
_FOREIGN_SIGNATURE = base64.urlsafe_b64decode("skip_thought_signature_validator")


class Gemini:
    """The provider "gemini". One client for the life of the process; it is safe for many threads."""

    def __init__(self, config: Settings) -> None:
        self._config = config
        self._client = once(self._connect)

    def _connect(self) -> Any:
        from google import genai
        from google.oauth2.credentials import Credentials

        config = self._config
        return genai.Client(
            vertexai=True,
            project=config.vertex_project,
            location=config.vertex_location,
            # Another server gets no credentials of ours, and anonymous ones the SDK refuses.
            credentials=Credentials("token") if config.vertex_base_url else None,  # type: ignore[no-untyped-call]
            http_options={
                "base_url": config.vertex_base_url or None,
                "timeout": int(config.model_timeout_seconds * 1000),
            },
        )

    def preload(self) -> None:
        """Import the SDK and build the client ahead of the first call."""
        self._client()

    def stream(self, request: ModelRequest, model: str) -> Generator[ProviderEvent]:
        """See `Provider`. Raises ValueError for a schema with open maps, which Gemini would leave empty without a word."""
        import httpx
        import httpx2
        from google.auth import exceptions as auth
        from google.genai import errors

        arguments = build(request, model)
        try:
            yield from self._answer(arguments, model)
        except errors.APIError as error:
            if error.code in _OVERLOADED:
                raise ProviderOverloaded(f"Gemini: {error.status or error.code}") from error
            raise ProviderFailed(f"Gemini refused: {error.status or error.code}") from error
        except auth.TransportError as error:
            raise ProviderOverloaded("Gemini: no token could be fetched") from error
        except auth.GoogleAuthError as error:
            raise ProviderFailed(f"Gemini: {type(error).__name__}") from error
        # ValueError: a broken event
        except (httpx.HTTPError, httpx2.HTTPError, ValueError) as error:
            raise ProviderOverloaded(f"Gemini: {type(error).__name__}") from error

    def _answer(self, arguments: dict[str, Any], model: str) -> Iterator[ProviderEvent]:
        calls: list[ToolCall] = []
        usage, finish, version = Usage(), "", model
        for chunk in self._client().models.generate_content_stream(**arguments):
            version = chunk.model_version or version
            if chunk.usage_metadata:
                usage = _usage(chunk.usage_metadata)
                yield usage
            if chunk.prompt_feedback and chunk.prompt_feedback.block_reason:
                finish = "SAFETY"
            for candidate in chunk.candidates or ():
                finish = str(getattr(candidate.finish_reason, "value", None) or finish)
                for part in (candidate.content and candidate.content.parts) or ():
                    if part.function_call:
                        calls.append(_call(part, model))
                    elif part.text and not part.thought:
                        yield TextDelta(part.text)
        if not finish or finish in _MISSHAPEN:
            raise ProviderOverloaded(f"Gemini ended with {finish or 'no reason'}")
        if finish == "STOP":
            yield from calls
        yield Stop(_reason(finish, bool(calls)), version, "gemini", usage)


def provider(config: Settings) -> Gemini:
    """Gemini in the project of the settings; nothing is imported or connected yet."""
    return Gemini(config)


def build(request: ModelRequest, model: str) -> dict[str, Any]:
    """The arguments of `generate_content_stream`. The stable sections come first: Gemini's implicit cache works by prefix."""
    config: dict[str, Any] = {"max_output_tokens": request.max_output_tokens + REASONING_TOKENS["gemini"]}
    if system := [{"text": section.text} for section in request.system if section.text]:
        config["system_instruction"] = {"role": "user", "parts": system}
    if request.tools:
        declared = [
            {"name": t.name, "description": t.description, "parameters_json_schema": t.parameters}
            for t in request.tools
        ]
        config["tools"] = [{"function_declarations": declared}]
        config["automatic_function_calling"] = {"disable": True}
    if request.schema is not None:
        if maps := open_maps(request.schema):
            raise ValueError(f"Gemini leaves maps empty: {', '.join(maps)}. Use lists of key and value.")
        config |= {"response_mime_type": "application/json", "response_json_schema": request.schema}
    if level := _REASONING.get(model):
        config["thinking_config"] = {"thinking_level": level}
    return {"model": model, "contents": _contents(request.messages, model), "config": config}


def open_maps(schema: Any, path: str = "$") -> list[str]:
    """Where a schema allows keys that it does not name."""
    if isinstance(schema, list):
        return [found for at, item in enumerate(schema) for found in open_maps(item, f"{path}[{at}]")]
    if not isinstance(schema, dict):
        return []
    here = [path] if schema.get("additionalProperties", False) is not False else []
    return here + [found for key, value in schema.items() for found in open_maps(value, f"{path}.{key}")]


def _contents(messages: tuple[Message, ...], model: str) -> list[dict[str, Any]]:
    calls = {call.id: call for message in messages for call in message.calls}
    contents = []
    for message in messages:
        parts: list[dict[str, Any]] = [
            {
                "function_response": {
                    **_wire_id(calls.get(result.call_id)),
                    "name": calls[result.call_id].name if result.call_id in calls else "unknown",
                    "response": {"error" if result.is_error else "output": result.content},
                }
            }
            for result in message.results
        ]
        if message.text.strip():
            parts.append({"text": message.text})
        for at, call in enumerate(message.calls):
            part: dict[str, Any] = {
                "function_call": {**_wire_id(call), "name": call.name, "args": call.input}
            }
            own = isinstance(call.replay, dict) and call.replay.get("gemini") == model
            # Of parallel calls only the first is signed.
            signature = call.replay["signature"] if own else None if at else _FOREIGN_SIGNATURE
            parts.append({**part, "thought_signature": signature} if signature else part)
        if parts:
            contents.append({"role": "model" if message.role == "assistant" else "user", "parts": parts})
    return contents


def _wire_id(call: ToolCall | None) -> dict[str, str]:
    """The id that Gemini itself gave a call, if it did."""
    given = call.replay.get("id") if call and isinstance(call.replay, dict) else None
    return {"id": given} if given else {}


def _call(part: Any, model: str) -> ToolCall:
    """A function call. Gemini on Vertex AI often gives no id, and ours must differ within a turn, over all its rounds."""
    call = part.function_call
    replay = {"gemini": model, "signature": part.thought_signature, "id": call.id}
    return ToolCall(call.id or f"call_{uuid.uuid4().hex}", call.name or "", dict(call.args or {}), replay)


def _usage(usage: Any) -> Usage:
    """The prompt's count includes what came from the cache; reasoning is counted beside the answer and charged as output."""
    cached = usage.cached_content_token_count or 0
    prompt = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
    written = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
    return Usage(max(prompt - cached, 0), written, cached)


def _reason(finish: str, called: bool) -> StopReason:
    if finish == "MAX_TOKENS":
        return "max_tokens"
    if finish in _BLOCKED:
        return "refusal"
    if finish != "STOP":
        log.write("Gemini stopped for an unknown reason: taken as an end", severity="WARNING", reason=finish)
    return "tool_use" if called and finish == "STOP" else "end"

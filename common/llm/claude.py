"""Claude through the Messages API: the only module that knows `anthropic`, imported on first use.

Retries are ours (`call`), so the SDK's are off. Reasoning is turned as low as each model allows: an advisor's first word should not
wait for it ("What's new in Claude Sonnet 5.5", "Prompting Claude Haiku 5.5", platform.claude.com, read on 2026-11-30).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from common import log
from common.config import Settings
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

# Sonnet 5.5 refuses "disabled" and knows "between_tools" instead; models not listed take neither field.
_REASONING: dict[str, dict[str, Any]] = {
    "claude-sonnet-5-5": {"thinking": {"type": "between_tools"}, "output_config": {"effort": "medium"}},
    "claude-haiku-5-5": {"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}},
}
_STOPS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_full",
}
_OVERLOADED_STATUS = {408, 425, 429, 500, 502, 503, 504, 529}
# An error inside a stream has the status of the response, 200, and only its type tells what it is.
_OVERLOADED_TYPE = {"overloaded_error", "rate_limit_error", "api_error", "timeout_error"}
MAX_PAUSES = 3
_MARK = {"type": "ephemeral"}


class Claude:
    """The provider "claude". One client for the life of the process; it is safe for many threads."""

    def __init__(self, config: Settings) -> None:
        self._config = config
        self._client = once(self._connect)

    def _connect(self) -> Any:
        import httpx2

        # The authorities are read without the interpreter's lock: beside the import, they cost no time.
        with ThreadPoolExecutor(1, "authorities") as beside:
            authorities = beside.submit(httpx2.create_ssl_context)
            import anthropic

        key = self._config.anthropic_api_key
        return anthropic.Anthropic(
            http_client=anthropic.DefaultHttpxClient(verify=authorities.result()),
            api_key=key.get_secret_value() if key else "",
            base_url=self._config.anthropic_base_url or None,
            max_retries=0,
            timeout=httpx2.Timeout(self._config.model_timeout_seconds, connect=10.0),
        )

    def preload(self) -> None:
        """Import the SDK and build the client ahead of the first call."""
        self._client()

    def stream(self, request: ModelRequest, model: str) -> Generator[ProviderEvent]:
        """See `Provider`. A paused turn is continued, at most `MAX_PAUSES` times, as part of the same call."""
        import anthropic
        import httpx2

        try:
            yield from self._turn(build(request, model), request, model)
        except anthropic.APIStatusError as error:
            if error.status_code in _OVERLOADED_STATUS or error.type in _OVERLOADED_TYPE:
                raise ProviderOverloaded(f"Claude: {error.type or error.status_code}") from error
            raise ProviderFailed(f"Claude refused: {error.type or error.status_code}") from error
        # ValueError: a broken event or a tool's arguments that are no JSON
        except (anthropic.APIConnectionError, httpx2.HTTPError, ValueError) as error:
            raise ProviderOverloaded(f"Claude: {type(error).__name__}") from error

    def _turn(self, arguments: dict[str, Any], request: ModelRequest, model: str) -> Iterator[ProviderEvent]:
        total = Usage()
        for _ in range(1 + MAX_PAUSES):
            answer: Any = None
            with self._client().messages.stream(**arguments) as stream:
                for event in stream:
                    if event.type == "text":
                        yield TextDelta(event.text)
                    elif event.type in ("message_start", "message_delta"):
                        answer = stream.current_message_snapshot
                        yield total + _usage(answer.usage)
            if answer is None or answer.stop_reason is None:
                raise ProviderOverloaded("Claude: the stream ended without a stop")
            total += _usage(answer.usage)
            if answer.stop_reason != "pause_turn":
                if answer.stop_reason == "tool_use":
                    yield from _calls(answer, model)
                yield Stop(_reason(answer.stop_reason), answer.model, "claude", total)
                return
            paused = {"role": "assistant", "content": _as_sent(answer.content)}
            arguments = {**arguments, "messages": [*arguments["messages"], paused]}
        yield Stop("max_tokens", answer.model, "claude", total)


def provider(config: Settings) -> Claude:
    """Claude with the key and the address of the settings; nothing is imported or connected yet."""
    return Claude(config)


def build(request: ModelRequest, model: str) -> dict[str, Any]:
    """The arguments of `messages.stream`.

    Cache marks (at most three) stand behind the tools, which all customers share, behind the last stable section, and, within a
    turn, behind the last round of tool results. The bytes before a mark depend on nothing that comes after it.
    """
    arguments: dict[str, Any] = {
        "model": model,
        "max_tokens": request.max_output_tokens,
        "messages": _messages(request.messages, model),
        **_REASONING.get(model, {}),
    }
    if system := _system(request):
        arguments["system"] = system
    if request.tools:
        arguments["tools"] = [
            {"name": t.name, "description": t.description, "input_schema": t.parameters}
            for t in request.tools
        ]
        arguments["tools"][-1]["cache_control"] = _MARK
    if request.schema is not None:
        wanted = {"type": "json_schema", "schema": _closed(request.schema)}
        arguments["output_config"] = {**arguments.get("output_config", {}), "format": wanted}
    return arguments


def _system(request: ModelRequest) -> list[dict[str, Any]]:
    sections = [section for section in request.system if section.text]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": section.text} for section in sections]
    stable = [at for at, section in enumerate(sections) if section.stable]
    if stable:
        blocks[stable[-1]]["cache_control"] = _MARK
    return blocks


def _messages(messages: tuple[Message, ...], model: str) -> list[dict[str, Any]]:
    """Each message as content blocks; empty ones, which the API refuses, are left out."""
    built = [{"role": m.role, "content": blocks} for m in messages if (blocks := _blocks(m, model))]
    if messages and messages[-1].results:
        last: Any = built[-1]["content"]
        last[-1]["cache_control"] = _MARK
    return built


def _blocks(message: Message, model: str) -> list[dict[str, Any]]:
    replay = message.calls[0].replay if message.calls else None
    if isinstance(replay, dict) and replay.get("claude") == model:
        return list(replay["content"])
    results = [
        {
            "type": "tool_result",
            "tool_use_id": r.call_id,
            "content": r.content or "(empty)",
            "is_error": r.is_error,
        }
        for r in message.results
    ]
    text = [{"type": "text", "text": message.text}] if message.text.strip() else []
    calls = [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.input} for c in message.calls]
    return [*results, *text, *calls]


def _closed(schema: Any) -> Any:
    """The schema with every object closed, as structured outputs demand."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    return {**closed, "additionalProperties": False} if schema.get("type") == "object" else closed


def _calls(answer: Any, model: str) -> Iterator[ToolCall]:
    """The tool calls of a finished answer. The first carries the whole answer where it has reasoning blocks, for the API wants
    these back unchanged with the results."""
    content = _as_sent(answer.content)
    reasoned = any(block["type"] in ("thinking", "redacted_thinking") for block in content)
    replay = {"claude": model, "content": content} if reasoned else None
    for block in answer.content:
        if block.type == "tool_use":
            given = block.input if isinstance(block.input, dict) else {}
            yield ToolCall(block.id, block.name, given, replay)
            replay = None


def _as_sent(content: Any) -> list[dict[str, Any]]:
    return [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in content]


def _usage(usage: Any) -> Usage:
    return Usage(
        usage.input_tokens or 0,
        usage.output_tokens or 0,
        usage.cache_read_input_tokens or 0,
        usage.cache_creation_input_tokens or 0,
    )


def _reason(stop_reason: str) -> StopReason:
    if stop_reason not in _STOPS:
        log.write(
            "Claude stopped for an unknown reason: taken as an end", severity="WARNING", reason=stop_reason
        )
    return _STOPS.get(stop_reason, "end")

"""What goes to a model and what comes back, in no provider's words."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Protocol

Task = Literal["chat", "skill", "wrap_up"]
StopReason = Literal["end", "tool_use", "max_tokens", "refusal", "context_full", "cancelled"]


class Section(NamedTuple):
    """One named part of the system prompt. A cache mark stands behind the last section with `stable=True`."""

    name: str
    text: str
    stable: bool = False


@dataclass(frozen=True)
class ToolSpec:
    """A tool as a model sees it; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class ToolCall:
    """The model asks for a tool. `input` is what it sent, unchecked.

    `replay` is opaque: what the provider that made the call must see again with it (reasoning blocks, signatures). Give the
    call back as it came; another provider ignores it. It lives within a turn and is never stored.
    """

    id: str
    name: str
    input: dict[str, Any]
    replay: Any = field(default=None, compare=False, repr=False)


class ToolResult(NamedTuple):
    """The answer to a `ToolCall`, as text for the model."""

    call_id: str
    content: str
    is_error: bool = False


class Message(NamedTuple):
    """One entry of the conversation: text of either side, the calls an assistant made, or the results the user side gives back.

    Roles alternate; a message with `calls` is followed by one with exactly their `results`.
    """

    role: Literal["user", "assistant"]
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()


class ModelRequest(NamedTuple):
    """Everything a model gets. `schema` asks for one JSON object of that shape instead of prose."""

    task: Task
    system: tuple[Section, ...]
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    schema: dict[str, Any] | None = None
    max_output_tokens: int = 2048


class TextDelta(NamedTuple):
    text: str


@dataclass(frozen=True)
class Usage:
    """Tokens of one call, each counted once: `input_tokens` excludes what was read from or written to the provider's cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )


@dataclass(frozen=True)
class Stop:
    """The end of a call: why, by which model, at what cost in US dollars."""

    reason: StopReason
    model: str
    provider: str
    usage: Usage = field(default_factory=Usage)
    cost_usd: Decimal = Decimal(0)


ModelEvent = TextDelta | ToolCall | Stop
ProviderEvent = ModelEvent | Usage
"""What a provider yields to `call`: a `Usage` is what it knows until then (a later one replaces it) and goes no further."""


class ModelChoice(NamedTuple):
    """A row of the routing table: `provider` is claude, gemini or offline."""

    provider: str
    model: str


class Provider(Protocol):
    """A vendor behind the seam.

    `stream` yields deltas, calls and usage so far, then exactly one `Stop`. It raises `ProviderOverloaded` where another try may help and
    `ProviderFailed` where not. A `Stop`'s `cost_usd` is left at zero: `call` prices it.
    """

    def stream(self, request: ModelRequest, model: str) -> Generator[ProviderEvent]: ...

    def preload(self) -> None:
        """Import the SDK and build the client ahead of the first call."""


class ProviderError(Exception):
    """A provider did not answer as it should.

    `call` adds what was spent until then: `usage`, its `cost_usd`, and the `choice` that answered last.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.usage = Usage()
        self.cost_usd = Decimal(0)
        self.choice: ModelChoice | None = None


class ProviderOverloaded(ProviderError):
    """Overload, rate limit, timeout or a broken connection: another try, or another provider, may help."""


class ProviderFailed(ProviderError):
    """The request was refused as it stands: trying again will not help."""

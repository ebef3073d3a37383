"""The one way to call a model: tries, fallback, and what it cost. Knows no database; `routing` says which model a task gets."""

from __future__ import annotations

import functools
import importlib
import random
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple, cast

from common import log
from common.config import Settings
from common.llm import prices
from common.llm.routing import OFFLINE, ROUTES, TASKS, TIERS, Tier, check, choose
from common.llm.types import (
    ModelChoice,
    ModelEvent,
    ModelRequest,
    Provider,
    ProviderError,
    ProviderEvent,
    ProviderOverloaded,
    Stop,
    StopReason,
    TextDelta,
    ToolCall,
    Usage,
)
from common.once import once
from common.text import count_tokens, plain_tokens, to_json

__all__ = [
    "OFFLINE",
    "ROUTES",
    "TASKS",
    "TIERS",
    "Attempt",
    "Tier",
    "attempts",
    "check",
    "choose",
    "preload",
    "stream",
    "worst_case_usd",
]

BACKOFF_SECONDS = (0.5, 1.5)
# Claude 4.7 and later make about 30 % more tokens of a text than the models before them, which is all the room that `count_tokens`
# leaves; a reservation must not fall short for it.
_COUNT_MARGIN = Decimal("1.15")


class Attempt(NamedTuple):
    """One try: which model, and how long to wait before it."""

    choice: ModelChoice
    wait_seconds: float = 0.0


def attempts(choice: ModelChoice, fallback: ModelChoice | None, jitter: float = 0.5) -> tuple[Attempt, ...]:
    """The tries of a call, in order, as long as no token has come: the model, again after growing waits, then the fallback.

    `jitter` (0 to 1) spreads each wait between half and one and a half of its length.
    """
    again = tuple(Attempt(choice, seconds * (0.5 + jitter)) for seconds in BACKOFF_SECONDS)
    last = (Attempt(fallback),) if fallback and fallback != choice else ()
    return (Attempt(choice), *again, *last)


def preload(config: Settings) -> None:
    """Import the SDKs of the configured providers and build their clients, ahead of the first call."""
    choices = {choice for key in ROUTES for choice in choose(config, *key) if choice}
    for name in sorted({choice.provider for choice in choices}):
        _provider(name, config).preload()


def stream(
    request: ModelRequest,
    choice: ModelChoice,
    fallback: ModelChoice | None,
    *,
    config: Settings,
    sleep: Callable[[float], None] = time.sleep,
    cancelled: Callable[[], bool] = lambda: False,
) -> Generator[ModelEvent]:
    """The events of one call: deltas and tool calls, then one `Stop`, priced; usage and cost include tries that failed.

    Overload, rate limit and timeout are tried again, then with the fallback, as long as nothing was yielded. Otherwise raises
    ProviderError with what was spent. When `cancelled` says so, the call ends with a `Stop` of reason "cancelled".
    """
    spent = Spent()
    plan = attempts(choice, fallback, random.random())  # noqa: S311 - spreads retries, guards nothing
    for number, attempt in enumerate(plan, start=1):
        if number > 1:
            sleep(attempt.wait_seconds)
        if cancelled():
            yield spent.stop(attempt.choice, "cancelled")
            return
        spent.begin()
        try:
            yield from _one(request, attempt.choice, config, spent, cancelled)
            return
        except ProviderError as error:
            spent.end(attempt.choice)
            error.usage, error.cost_usd, error.choice = spent.usage, spent.cost_usd, attempt.choice
            if spent.yielded or not isinstance(error, ProviderOverloaded) or number == len(plan):
                raise
            log.write(
                "A model did not answer: trying again",
                severity="WARNING",
                provider=attempt.choice.provider,
                model=attempt.choice.model,
                error_type=type(error.__cause__ or error).__name__,
                attempt=number,
            )


class Spent:
    """What a call has used so far, over all its tries."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.cost_usd = Decimal(0)
        self.yielded = False
        self.begin()

    def begin(self) -> None:
        """A try begins: nothing is known of it."""
        self._known = Usage()
        self._text: list[str] = []

    def saw(self, event: ProviderEvent) -> None:
        """Take note of an event of the current try."""
        if isinstance(event, Usage):
            self._known = event
        elif isinstance(event, TextDelta):
            self._text.append(event.text)
        self.yielded = self.yielded or isinstance(event, TextDelta | ToolCall)

    def end(self, choice: ModelChoice) -> None:
        """The try broke off. What was generated is charged although the provider's last report came before it."""
        said = plain_tokens("".join(self._text))
        self.add(choice, replace(self._known, output_tokens=max(self._known.output_tokens, said)))

    def add(self, choice: ModelChoice, usage: Usage) -> None:
        self.usage += usage
        self.cost_usd += prices.cost_usd(choice, usage)

    def stop(self, choice: ModelChoice, reason: StopReason, model: str = "") -> Stop:
        """The end of the call, by what answered last, with all that was spent."""
        return Stop(reason, model or choice.model, choice.provider, self.usage, self.cost_usd)


def _one(
    request: ModelRequest, choice: ModelChoice, config: Settings, spent: Spent, cancelled: Callable[[], bool]
) -> Iterator[ModelEvent]:
    """One try. Closing the provider's iterator, in whichever way this ends, closes its connection."""
    provider = _provider(choice.provider, config)
    with closing(provider.stream(request, choice.model)) as events:
        for event in events:
            spent.saw(event)
            if isinstance(event, Stop):
                spent.add(choice, event.usage)
                yield spent.stop(choice, event.reason, event.model)
                return
            if cancelled():
                spent.end(choice)
                yield spent.stop(choice, "cancelled")
                return
            if not isinstance(event, Usage):
                yield event
    raise ProviderOverloaded("The stream ended without a stop")


def worst_case_usd(
    request: ModelRequest, choice: ModelChoice, fallback: ModelChoice | None = None
) -> Decimal:
    """The most that a call may cost: everything written to the cache and the longest answer, by the dearer of both models."""
    counted = count_tokens(_everything(request))
    return ceiling_usd(choice, fallback, prompt_tokens=counted, output_tokens=request.max_output_tokens)


@functools.lru_cache(256)
def ceiling_usd(
    choice: ModelChoice, fallback: ModelChoice | None, *, prompt_tokens: int, output_tokens: int
) -> Decimal:
    """The same for a call of which only the bounds are known. `prompt_tokens` are counted by `count_tokens`."""
    prompt = int(prompt_tokens * _COUNT_MARGIN)
    return max(
        prices.cost_usd(c, Usage(0, output_tokens + prices.REASONING_TOKENS.get(c.provider, 0), 0, prompt))
        for c in (choice, fallback or choice)
    )


def _everything(request: ModelRequest) -> str:
    parts = [section.text for section in request.system]
    parts += [to_json([tool.name, tool.description, tool.parameters]) for tool in request.tools]
    for message in request.messages:
        parts.append(message.text)
        parts += [to_json([call.name, call.input]) for call in message.calls]
        parts += [result.content for result in message.results]
    return "\n".join([*parts, to_json(request.schema or {})])


@once
def _provider(name: str, config: Settings) -> Provider:
    """The provider, one for each process and settings: its client keeps connections. The SDK is not imported yet."""
    module = importlib.import_module(f"common.llm.{name}")
    return cast(Provider, module.provider(config))

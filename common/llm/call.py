"""The one way to call a model: which model a task gets, tries and fallback, and what it cost. Knows no database."""

from __future__ import annotations

import functools
import importlib
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal, cast, get_args

from common import log
from common.config import Settings, variable
from common.errors import ConfigError
from common.llm import prices
from common.llm.types import (
    ModelChoice,
    ModelEvent,
    ModelRequest,
    Provider,
    ProviderError,
    ProviderOverloaded,
    Stop,
    Task,
    TextDelta,
    ToolCall,
    Usage,
)
from common.text import count_tokens, plain_tokens, to_json

Tier = Literal["free", "pro"]
TASKS: tuple[Task, ...] = get_args(Task)
TIERS: tuple[Tier, ...] = get_args(Tier)

OFFLINE = ModelChoice("offline", "offline-1")


@dataclass(frozen=True)
class Route:
    """A row of the routing table: the settings that may name the models, and the models when these are empty."""

    setting: str
    model: ModelChoice
    fallback_setting: str
    fallback: ModelChoice


# A fallback is of the other vendor, for an overload is seldom one model's alone. gemini-3.5-flash-lite is what Google names as the
# successor of the retired gemini-2.5-flash, at its price.
ROUTES: dict[tuple[Task, Tier], Route] = {
    ("chat", "pro"): Route(
        "chat_pro_model",
        ModelChoice("claude", "claude-sonnet-5-5"),
        "chat_fallback_model",
        ModelChoice("gemini", "gemini-3.8-flash"),
    ),
    ("chat", "free"): Route(
        "chat_free_model",
        ModelChoice("claude", "claude-haiku-5-5"),
        "chat_fallback_model",
        ModelChoice("gemini", "gemini-3.5-flash-lite"),
    ),
    **{
        ("skill", tier): Route(
            "skill_model",
            ModelChoice("claude", "claude-haiku-5-5"),
            "skill_fallback_model",
            ModelChoice("gemini", "gemini-3.5-flash-lite"),
        )
        for tier in TIERS
    },
    **{
        ("wrap_up", tier): Route(
            "wrap_up_model",
            ModelChoice("gemini", "gemini-3.5-flash-lite"),
            "wrap_up_fallback_model",
            ModelChoice("claude", "claude-haiku-5-5"),
        )
        for tier in TIERS
    },
}

# Provider -> its module and the setting without which it cannot be called.
_PROVIDERS: dict[str, tuple[str, str | None]] = {
    "claude": ("common.llm.claude", "anthropic_api_key"),
    "gemini": ("common.llm.gemini", "vertex_project"),
    "offline": ("common.llm.offline", None),
}

BACKOFF_SECONDS = (0.5, 1.5)
# Today's Claude counts about 12 % more tokens than `count_tokens` reckons with, and a reservation must not fall short.
_COUNT_MARGIN = Decimal("1.15")


@dataclass(frozen=True)
class Attempt:
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


def choose(config: Settings, task: Task, tier: Tier) -> tuple[ModelChoice, ModelChoice | None]:
    """The model of a task for a tier, and its fallback.

    A model that the settings name must have its key or project, else ConfigError. A default without them becomes the offline
    model; a default fallback without them, none: a real model's answer is never silently replaced by the offline one.
    """
    route = ROUTES[task, tier]
    named = _named(config, route.setting)
    choice = named or (route.model if _usable(config, route.model) else OFFLINE)
    fallback = _named(config, route.fallback_setting)
    if fallback is None and choice.provider != "offline" and _usable(config, route.fallback):
        fallback = route.fallback
    return choice, fallback


def check(config: Settings, tasks: Iterable[Task] = TASKS) -> None:
    """Raise ConfigError, at start, for a model that could not be called; in production also for one that would be offline by default."""
    for task in tasks:
        for tier in TIERS:
            choice, _ = choose(config, task, tier)
            route = ROUTES[task, tier]
            if config.environment == "prod" and choice == OFFLINE and not getattr(config, route.setting):
                raise ConfigError(
                    f"{_needs(route.model)} is missing: production does not answer with the offline model by default. "
                    f"Set it, or name a model in {variable(route.setting)}."
                )


def preload(config: Settings) -> threading.Thread:
    """Import the SDKs of the configured providers in the background, so that neither the start nor the first turn waits for them."""
    choices = {choice for key in ROUTES for choice in choose(config, *key) if choice}
    names = sorted({choice.provider for choice in choices})

    def load() -> None:
        for name in names:
            provider = _provider(name, config)
            getattr(provider, "preload", lambda: None)()

    thread = threading.Thread(target=load, name="preload-models", daemon=True)
    thread.start()
    return thread


def stream(
    request: ModelRequest,
    choice: ModelChoice,
    fallback: ModelChoice | None,
    *,
    config: Settings,
    sleep: Callable[[float], None] = time.sleep,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[ModelEvent]:
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
            yield spent.stop(attempt.choice, Stop("cancelled", "", ""))
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

    def saw(self, event: ModelEvent | Usage) -> None:
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

    def stop(self, choice: ModelChoice, stop: Stop) -> Stop:
        """`stop` with the name of what answered and all that was spent."""
        return replace(
            stop,
            model=stop.model or choice.model,
            provider=choice.provider,
            usage=self.usage,
            cost_usd=self.cost_usd,
        )


def _one(
    request: ModelRequest, choice: ModelChoice, config: Settings, spent: Spent, cancelled: Callable[[], bool]
) -> Iterator[ModelEvent]:
    """One try. Closing the provider's iterator, in whichever way this ends, closes its connection."""
    provider = _provider(choice.provider, config)
    with closing(cast("Iterator[ModelEvent]", provider.stream(request, choice.model))) as events:  # type: ignore[type-var]
        for event in events:
            spent.saw(event)
            if isinstance(event, Stop):
                spent.add(choice, event.usage)
                yield spent.stop(choice, event)
                return
            if cancelled():
                spent.end(choice)
                yield spent.stop(choice, Stop("cancelled", "", ""))
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


@functools.lru_cache(maxsize=8)
def _provider(name: str, config: Settings) -> Provider:
    """The provider, one for each process and settings: its client keeps connections. The SDK is not imported yet."""
    module = importlib.import_module(_PROVIDERS[name][0])
    return cast(Provider, module.provider(config))


def _named(config: Settings, setting: str) -> ModelChoice | None:
    """The model that a setting names, or None. Raises ConfigError for one that is no `provider:model` or cannot be called."""
    text = getattr(config, setting)
    if not text:
        return None
    provider, _, model = text.partition(":")
    if provider not in _PROVIDERS or not model:
        raise ConfigError(
            f"{variable(setting)} must be provider:model with a provider of {', '.join(_PROVIDERS)}."
        )
    choice = ModelChoice(provider, model)
    if not _usable(config, choice):
        raise ConfigError(f"{variable(setting)} names {text}, and {_needs(choice)} is missing.")
    return choice


def _usable(config: Settings, choice: ModelChoice) -> bool:
    need = _PROVIDERS[choice.provider][1]
    return need is None or bool(getattr(config, need))


def _needs(choice: ModelChoice) -> str:
    return variable(_PROVIDERS[choice.provider][1] or "")

"""Which model a task gets, for which tier: the routing table, as the settings change it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

from common.config import Settings, variable
from common.errors import ConfigError
from common.llm.types import ModelChoice, Task

Tier = Literal["free", "pro"]
TASKS: tuple[Task, ...] = get_args(Task)
TIERS: tuple[Tier, ...] = get_args(Tier)

OFFLINE = ModelChoice("offline", "offline-1")


class Route(NamedTuple):
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

# Provider -> the setting without which it cannot be called.
_NEEDS: dict[str, str | None] = {"claude": "anthropic_api_key", "gemini": "vertex_project", "offline": None}


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


def _named(config: Settings, setting: str) -> ModelChoice | None:
    """The model that a setting names, or None. Raises ConfigError for one that is no `provider:model` or cannot be called."""
    text = getattr(config, setting)
    if not text:
        return None
    provider, _, model = text.partition(":")
    if provider not in _NEEDS or not model:
        raise ConfigError(
            f"{variable(setting)} must be provider:model with a provider of {', '.join(_NEEDS)}."
        )
    choice = ModelChoice(provider, model)
    if not _usable(config, choice):
        raise ConfigError(f"{variable(setting)} names {text}, and {_needs(choice)} is missing.")
    return choice


def _usable(config: Settings, choice: ModelChoice) -> bool:
    need = _NEEDS[choice.provider]
    return need is None or bool(getattr(config, need))


def _needs(choice: ModelChoice) -> str:
    return variable(_NEEDS[choice.provider] or "")

"""The seam: routing, tries, prices and reservations, as tables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from common.config import Settings
from common.errors import ConfigError
from common.llm import call, prices
from common.llm.types import (
    Message,
    ModelChoice,
    ModelRequest,
    ProviderEvent,
    ProviderFailed,
    ProviderOverloaded,
    Section,
    Stop,
    TextDelta,
    ToolSpec,
    Usage,
)

SONNET = ModelChoice("claude", "claude-sonnet-5-5")
HAIKU = ModelChoice("claude", "claude-haiku-5-5")
FLASH = ModelChoice("gemini", "gemini-3.8-flash")
LITE = ModelChoice("gemini", "gemini-3.5-flash-lite")
OFFLINE = call.OFFLINE
REQUEST = ModelRequest("chat", (Section("base", "You advise."),), (Message("user", "Hi"),))
BOTH: dict[str, Any] = {"anthropic_api_key": "sk", "vertex_project": "p"}


@pytest.mark.parametrize(
    ("given", "task", "tier", "expected"),
    [
        ({}, "chat", "pro", (OFFLINE, None)),
        ({}, "skill", "free", (OFFLINE, None)),
        ({}, "wrap_up", "pro", (OFFLINE, None)),
        (BOTH, "chat", "pro", (SONNET, FLASH)),
        (BOTH, "chat", "free", (HAIKU, LITE)),
        (BOTH, "skill", "pro", (HAIKU, LITE)),
        (BOTH, "wrap_up", "free", (LITE, HAIKU)),
        ({"anthropic_api_key": "sk"}, "chat", "pro", (SONNET, None)),
        ({"anthropic_api_key": "sk"}, "wrap_up", "pro", (OFFLINE, None)),
        ({"vertex_project": "p"}, "chat", "pro", (OFFLINE, None)),
        (
            {**BOTH, "chat_pro_model": "claude:claude-opus-5-5", "chat_fallback_model": "claude:claude-sonnet-5-5"},
            "chat",
            "pro",
            (ModelChoice("claude", "claude-opus-5-5"), SONNET),
        ),
        ({**BOTH, "skill_model": "offline:offline-1"}, "skill", "pro", (OFFLINE, None)),
    ],
)  # fmt: skip
def test_routing(given: dict[str, Any], task: Any, tier: Any, expected: Any) -> None:
    assert call.choose(Settings(**given), task, tier) == expected


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"chat_pro_model": "claude:claude-sonnet-5-5"}, "ANTHROPIC_API_KEY"),
        ({"wrap_up_fallback_model": "gemini:gemini-3.8-flash"}, "MEMBERINTEL_VERTEX_PROJECT"),
        ({"skill_model": "claude-haiku-5-5"}, "MEMBERINTEL_SKILL_MODEL"),
        ({"skill_model": "openai:gpt"}, "MEMBERINTEL_SKILL_MODEL"),
    ],
)
def test_a_named_model_that_cannot_be_called_stops_the_start(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        call.check(Settings(**given))


def test_production_does_not_fall_to_the_offline_model_unasked() -> None:
    prod = {"environment": "prod", "pubsub_project": "p"}
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        call.check(Settings(**prod))
    call.check(Settings(**prod, vertex_project="p"), tasks=("wrap_up",))
    call.check(Settings())


@pytest.mark.parametrize(
    ("fallback", "jitter", "expected"),
    [
        (FLASH, 0.5, [(SONNET, 0.0), (SONNET, 0.5), (SONNET, 1.5), (FLASH, 0.0)]),
        (FLASH, 0.0, [(SONNET, 0.0), (SONNET, 0.25), (SONNET, 0.75), (FLASH, 0.0)]),
        (None, 1.0, [(SONNET, 0.0), (SONNET, 0.75), (SONNET, 2.25)]),
        (SONNET, 0.5, [(SONNET, 0.0), (SONNET, 0.5), (SONNET, 1.5)]),
    ],
)
def test_the_tries_of_a_call(fallback: ModelChoice | None, jitter: float, expected: Any) -> None:
    assert [(a.choice, a.wait_seconds) for a in call.attempts(SONNET, fallback, jitter)] == expected


class Fake:
    """A provider that plays one list of events for each call; an exception in it is raised."""

    def __init__(self, *plays: list[ProviderEvent | Exception]) -> None:
        self.plays = list(plays)
        self.models: list[str] = []
        self.closed = 0

    def stream(self, request: ModelRequest, model: str) -> Iterator[ProviderEvent]:
        self.models.append(model)
        try:
            for event in self.plays.pop(0):
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.closed += 1


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(*plays: list[ProviderEvent | Exception]) -> Fake:
        fake = Fake(*plays)
        monkeypatch.setattr(call, "_provider", lambda name, config: fake)
        return fake

    return use


def stream(**more: Any) -> Iterator[Any]:
    more = {"sleep": lambda _: None, "config": Settings(), **more}
    return call.stream(REQUEST, SONNET, FLASH, **more)


def test_what_a_failed_try_used_is_part_of_the_total(play: Any) -> None:
    play(
        [Usage(1000, 0), ProviderOverloaded("busy")],
        [TextDelta("Hi"), Stop("end", "claude-sonnet-5-5", "claude", Usage(1000, 100))],
    )
    stop = list(stream())[-1]
    assert stop.usage == Usage(2000, 100)
    assert stop.cost_usd == Decimal("0.005")


def test_when_every_try_fails_the_last_error_is_raised(play: Any) -> None:
    fake = play(*[[ProviderOverloaded("busy")]] * 4)
    with pytest.raises(ProviderOverloaded):
        list(stream())
    assert fake.models == ["claude-sonnet-5-5"] * 3 + ["gemini-3.8-flash"]


def test_a_refused_request_is_not_tried_again(play: Any) -> None:
    fake = play([ProviderFailed("no")])
    with pytest.raises(ProviderFailed):
        list(stream())
    assert len(fake.models) == 1


def test_after_the_first_token_nothing_is_tried_again(play: Any) -> None:
    fake = play([Usage(100, 1), TextDelta("You have three"), ProviderOverloaded("cut")])
    events = stream()
    assert next(events) == TextDelta("You have three")
    with pytest.raises(ProviderOverloaded) as broken:
        next(events)
    assert len(fake.models) == 1
    assert broken.value.usage == Usage(100, 3)
    assert broken.value.choice == SONNET


def test_a_stream_without_a_stop_counts_as_broken(play: Any) -> None:
    play([TextDelta("Hm")])
    with pytest.raises(ProviderOverloaded):
        list(stream())


def test_a_cancelled_call_does_not_start_and_a_closed_one_closes_its_provider(play: Any) -> None:
    fake = play([TextDelta("a"), TextDelta("b")])
    (stop,) = stream(cancelled=lambda: True)
    assert (stop.reason, fake.models) == ("cancelled", [])
    events = stream()
    next(events)
    events.close()
    assert fake.closed == 1


def test_usage_reports_stay_inside_the_seam(play: Any) -> None:
    play([Usage(1, 0), TextDelta("a"), Usage(1, 5), Stop("end", "m", "claude", Usage(1, 5))])
    assert [type(event) for event in stream()] == [TextDelta, Stop]


@pytest.mark.parametrize(
    ("choice", "usage", "cost"),
    [
        (SONNET, Usage(1_000_000, 0), "2"),
        (SONNET, Usage(0, 1_000_000), "10"),
        (SONNET, Usage(0, 0, 1_000_000, 0), "0.10"),
        (SONNET, Usage(0, 0, 0, 1_000_000), "2.50"),
        (HAIKU, Usage(60_000, 1000), "0.0065"),
        (HAIKU, Usage(60_000, 1000, 40_001, 0), "0.03450005"),
        (LITE, Usage(1_000_000, 1_000_000), "2.80"),
        (ModelChoice("claude", "claude-haiku-4-5-20251001"), Usage(1_000_000, 0), "1"),
        (OFFLINE, Usage(1_000_000, 1_000_000), "0"),
    ],
)
def test_what_a_call_costs(choice: ModelChoice, usage: Usage, cost: str) -> None:
    assert prices.cost_usd(choice, usage) == Decimal(cost)


def test_an_unknown_model_costs_what_the_dearest_of_its_provider_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cost = prices.cost_usd(ModelChoice("claude", "claude-new"), Usage(0, 1_000_000))
    assert cost == max(rows[-1].output for rows in prices.PRICES["claude"].values())
    line = json.loads(capsys.readouterr().out)
    assert (line["severity"], line["model"]) == ("WARNING", "claude-new")


def test_every_default_model_has_a_price() -> None:
    for route in call.ROUTES.values():
        for choice in (route.model, route.fallback):
            assert choice.model in prices.PRICES[choice.provider]


def test_a_reservation_covers_everything_that_is_sent_and_the_longest_answer() -> None:
    tool = ToolSpec("t", "word " * 1000, {"type": "object"})
    bare = ModelRequest("chat", (), (Message("user", "word " * 1000),), max_output_tokens=1000)
    more = ModelRequest("chat", (), bare.messages, (tool,), max_output_tokens=1000)
    least = prices.cost_usd(SONNET, Usage(0, 1000, 0, 1300))
    assert call.worst_case_usd(bare, SONNET) > least
    assert call.worst_case_usd(more, SONNET) > call.worst_case_usd(bare, SONNET)
    assert call.worst_case_usd(bare, HAIKU, SONNET) == call.worst_case_usd(bare, SONNET)
    assert call.worst_case_usd(bare, OFFLINE) == 0


def test_nothing_of_a_vendor_is_imported_until_it_is_called() -> None:
    code = (
        "import sys; from common.llm import call, claude, gemini; from common.config import Settings;"
        "config = Settings(anthropic_api_key='sk', vertex_project='p'); call.check(config);"
        "claude.provider(config); gemini.provider(config);"
        "print([m for m in ('anthropic', 'google.genai', 'httpx', 'httpx2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_preloading_imports_the_sdks() -> None:
    call.preload(Settings(anthropic_api_key="sk", vertex_project="p", vertex_base_url="http://127.0.0.1:9"))
    assert {"anthropic", "google.genai"} <= sys.modules.keys()

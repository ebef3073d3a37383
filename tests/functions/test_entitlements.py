"""What a tier may use, over HTTP: never over, never stuck, and the books agree with what the provider reported."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from common import clock, driver, entitlements
from common.advisor import answering, turn
from common.config import settings
from common.entitlements import LIMITS
from common.llm import call as llm
from common.llm import prices
from common.llm.types import ModelChoice, ProviderFailed, Stop, ToolCall, Usage
from tests.functions.conftest import System
from tests.functions.scripted import play
from tests.functions.site import load_small_site
from tests.stubs.wrap_up_answers import wrap_up_json

SONNET = ModelChoice("claude", "claude-sonnet-5-5")
HAIKU = ModelChoice("claude", "claude-haiku-5-5")
NOW = datetime(2026, 5, 12, 10, 0, tzinfo=UTC)
USED = Usage(input_tokens=2_000, output_tokens=200, cache_read_tokens=4_000, cache_write_tokens=1_000)
ANSWERED = ["Gladly.", Stop("end", "", "claude", USED)]
LONG = "Let's run the spring discount at 15 percent for all new members, starting on May 15, and announce it in the newsletter."


@pytest.fixture(autouse=True)
def priced(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models with a price, at a fixed time."""
    monkeypatch.setattr(clock, "now", lambda: NOW)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    monkeypatch.setenv("MEMBERINTEL_WRAP_UP_MODEL", "claude:claude-haiku-5-5")
    settings.cache_clear()
    entitlements._spent.clear()


def limit(monkeypatch: pytest.MonkeyPatch, tier: Any, **limits: Decimal) -> None:
    monkeypatch.setitem(LIMITS, tier, replace(LIMITS[tier], **limits))


def used(system: System, counter: str) -> Decimal:
    rows = system.database.rows("select used from usage_counters where counter = :c", c=counter)
    return sum((row.used for row in rows), Decimal(0))


def charges(system: System) -> list[Any]:
    return system.database.rows("select * from usage_charges order by created_at, id")


def worst_call(monkeypatch: pytest.MonkeyPatch, system: System) -> Decimal:
    """What one call of a Pro user's turn reserves: a usual turn has two, reserved together."""
    play(monkeypatch, ANSWERED)
    assert system.chat("Hello").status_code == 200
    reserved: Decimal = charges(system)[0].reserved_usd
    for table in ("conversations", "usage_charges", "usage_counters"):
        system.database.run(f"delete from {table}")
    return reserved / turn.USUAL_CALLS


def at_once(system: System, count: int) -> list[Any]:
    system.client("chat")
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda n: system.chat("Hello", turn_id=f"t{n}"), range(count)))


# -- at the limit -----------------------------------------------------------------------------------------------------------


def test_fifty_turns_at_once_never_go_over_the_days_turns(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, "pro", turns=Decimal(20))
    play(monkeypatch, ANSWERED)
    answers = at_once(system, 50)
    assert sorted({a.status_code for a in answers}) == [200, 429]
    assert sum(a.status_code == 200 for a in answers) == 20
    refused = next(a for a in answers if a.status_code == 429)
    assert refused.json["type"].endswith("limit-reached")
    assert refused.json["limit"] == "turns"
    assert refused.json["until"] == "2026-05-13T00:00:00+00:00"
    assert int(refused.headers["Retry-After"]) == 14 * 3600
    assert used(system, "turns") == 20
    assert len(charges(system)) == 20
    # What was refused left nothing behind, and tomorrow it goes on.
    assert system.database.scalar("select count(*) from messages where role = 'user'") == 20
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(days=1))
    assert system.chat("Hello").status_code == 200


def test_fifty_turns_at_once_never_spend_more_than_the_months_money(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    worst = worst_call(monkeypatch, system)
    limit(monkeypatch, "pro", cost_usd=worst * Decimal("7.5"))
    most: list[Decimal] = []
    play(monkeypatch, [lambda: most.append(used(system, "cost_usd")), *ANSWERED])
    answers = at_once(system, 50)
    done = [a for a in answers if a.status_code == 200]
    assert {a.status_code for a in answers} <= {200, 429}
    assert len(done) >= 7
    assert max(most) <= worst * Decimal("7.5")
    spent = sum((row.cost_usd for row in charges(system)), Decimal(0))
    assert abs(used(system, "cost_usd") - spent) < Decimal("0.0001")
    assert {row.state for row in charges(system)} == {"settled"}
    # Never stuck: what was reserved and not used is there for the next.
    assert system.chat("Hello").status_code == 200


def test_an_answer_whose_commit_was_not_heard_of_gives_nothing_back_twice(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, ANSWERED)
    assert system.chat("Hello").status_code == 200
    heard = driver.Connection._answer
    lost = []

    def deaf(self: driver.Connection, flight: Any) -> BaseException | None:
        error = heard(self, flight)
        if not lost and any("held as (" in request.context.statement for request in flight):
            lost.append(error)
            raise driver.dbapi.InterfaceError("network error")
        return error

    monkeypatch.setattr(driver.Connection, "_answer", deaf)
    assert system.chat("And hello again", turn_id="t2").json["status"] == "complete"
    assert lost == [None]
    assert system.database.scalar("select count(*) from messages where role = 'assistant'") == 2
    assert {row.state for row in charges(system)} == {"settled"}
    assert used(system, "cost_usd") == sum(row.cost_usd for row in charges(system))


def test_a_conversation_whose_money_ends_mid_turn_keeps_what_was_said(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    worst = worst_call(monkeypatch, system)
    load_small_site(system.database, system.owner)
    limit(monkeypatch, "pro", cost_usd=worst + Decimal("0.0001"))
    call = ToolCall("c1", "query_site_data", {"target": "memberships"})
    play(monkeypatch, ["Let me look. ", call, Stop("tool_use", "", "claude", USED)], ANSWERED)
    answer = system.chat("And what would you do about my plans?").json
    assert (answer["status"], answer["error"]) == ("interrupted", "limit-reached")
    assert answer["text"] == "Let me look."
    (charge,) = charges(system)
    assert charge.state == "settled"


def test_a_usual_turns_two_calls_are_reserved_together_and_a_third_by_itself(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    worst = worst_call(monkeypatch, system)
    load_small_site(system.database, system.owner)
    seen: list[list[tuple[str, Decimal]]] = []

    def look() -> None:
        seen.append(sorted((row.state, round(row.reserved_usd / worst, 3)) for row in charges(system)))

    call = ToolCall("c1", "query_site_data", {"target": "memberships"})
    asks = [look, call, Stop("tool_use", "", "claude", USED)]
    play(monkeypatch, asks, asks, [look, *ANSWERED])
    assert system.chat("And what would you do about my plans?").json["status"] == "complete"
    assert seen == [
        [("reserved", 2)],
        [("reserved", 2)],
        [("reserved", 1), ("settled", 0), ("settled", 2)],
    ]
    each = prices.cost_usd(SONNET, USED)
    assert [(row.state, row.cost_usd) for row in charges(system)] == [("settled", each)] * 3
    assert abs(used(system, "cost_usd") - 3 * each) < Decimal("0.000003")


def test_money_for_one_call_still_begins_a_turn(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    worst = worst_call(monkeypatch, system)
    load_small_site(system.database, system.owner)
    limit(monkeypatch, "pro", cost_usd=worst * Decimal("1.5"))
    call = ToolCall("c1", "query_site_data", {"target": "memberships"})
    reserved: list[Decimal] = []
    asks = [
        lambda: reserved.append(round(used(system, "cost_usd") / worst, 3)),
        call,
        Stop("tool_use", "", "claude", USED),
    ]
    play(monkeypatch, asks, ANSWERED)
    assert system.chat("And what would you do about my plans?").json["status"] == "complete"
    assert reserved == [1]
    assert used(system, "turns") == 1
    assert [row.cost_usd for row in charges(system)] == [prices.cost_usd(SONNET, USED)] * 2


# -- the books --------------------------------------------------------------------------------------------------------------


def test_the_charges_are_what_the_provider_reported_cache_included(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_small_site(system.database, system.owner)
    call = ToolCall("c1", "query_site_data", {"target": "memberships"})
    play(monkeypatch, [call, Stop("tool_use", "", "claude", USED)], ANSWERED)
    answer = system.chat("And what would you do about my plans?").json
    assert answer["status"] == "complete"
    rows = charges(system)
    each = prices.cost_usd(SONNET, USED)
    assert each == Decimal(
        "0.0089"
    )  # 2,000 at 2, 200 at 10, 4,000 at 0.10 and 1,000 at 2.50 dollars a million
    assert [row.cost_usd for row in rows] == [each, each]
    assert answer["usage"] == {name: 2 * value for name, value in vars(USED).items()}
    assert sum(row.cache_read_tokens for row in rows) == 8_000
    assert abs(used(system, "cost_usd") - 2 * each) < Decimal("0.000003")


def test_a_provider_that_fails_costs_only_what_it_reported(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ProviderFailed("no")

    play(monkeypatch, [Usage(input_tokens=1_000), fail])
    assert system.chat("Hello").status_code == 503
    (charge,) = charges(system)
    assert (charge.state, charge.cost_usd) == ("settled", Decimal("0.002"))
    assert abs(used(system, "cost_usd") - charge.cost_usd) < Decimal("0.000002")


def test_a_reservation_whose_process_died_expires_at_its_worst_case(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    play(monkeypatch, ANSWERED)
    with monkeypatch.context() as dying:
        dying.setattr("common.advisor.turn.run", die)
        with pytest.raises(Killed):
            system.chat("Hello")
    reserved = charges(system)[0]
    assert reserved.state == "reserved"
    early = {"now": (NOW + timedelta(minutes=9)).isoformat()}
    assert system.internal("backfill_wrap_ups", early).json["expired"] == 0
    late = {"now": (NOW + timedelta(minutes=10)).isoformat()}
    assert system.internal("backfill_wrap_ups", late).json["expired"] == 1
    (expired,) = charges(system)
    assert (expired.state, expired.cost_usd) == ("expired", reserved.reserved_usd)
    assert abs(used(system, "cost_usd") - expired.cost_usd) < Decimal("0.000002")


# -- the tiers --------------------------------------------------------------------------------------------------------------


def test_the_tiers_are_what_was_promised() -> None:
    assert LIMITS["free"].cost_usd <= Decimal("1.10")
    assert LIMITS["pro"].cost_usd <= Decimal(12)
    assert (LIMITS["free"].memories, LIMITS["pro"].memories) == (5, 15)
    for name in ("turns", "cost_usd", "wrap_ups"):
        assert getattr(LIMITS["free"], name) < getattr(LIMITS["pro"], name)


@pytest.mark.parametrize(("tier", "model"), [("free", HAIKU), ("pro", SONNET)])
def test_each_tier_is_answered_and_charged_by_its_model(
    system: System, monkeypatch: pytest.MonkeyPatch, tier: str, model: ModelChoice
) -> None:
    system.database.run("update tenants set tier = :tier", tier=tier)
    play(monkeypatch, ANSWERED)
    assert system.chat("Hello").json["model"] == model.model
    assert charges(system)[0].cost_usd == prices.cost_usd(model, USED).quantize(Decimal("0.000001"))


@pytest.mark.parametrize(("tier", "outcome"), [("free", "limit_cost_usd"), ("pro", "made")])
def test_wrap_ups_are_the_first_thing_dropped_for_free(
    system: System,
    monkeypatch: pytest.MonkeyPatch,
    tier: Any,
    outcome: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    system.database.run("update tenants set tier = :tier", tier=tier)
    system.database.run(
        "insert into usage_counters (tenant_id, counter, period, used) values (:t, 'cost_usd', '2026-05-01', :used)",
        t=system.owner.tenant_id,
        used=LIMITS[tier].cost_usd * Decimal("0.92"),
    )
    play(monkeypatch, ANSWERED)
    for _ in range(2):
        assert system.chat(LONG, end_session=True).status_code == 200
        play(monkeypatch, [wrap_up_json(), Stop("end", "", "claude", USED)])
        capsys.readouterr()
        system.deliver_all()
        line = f'"event": "wrap_ups_generated_total", "trigger": "client", "outcome": "{outcome}"'
        assert line in capsys.readouterr().out
    states = system.database.rows("select wrap_up, wrap_up_reason from sessions")
    expected = ("made", None) if outcome == "made" else ("skipped", outcome)
    assert [tuple(row) for row in states] == [expected] * 2


def test_a_tenants_limit_is_no_other_tenants(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, "pro", turns=Decimal(1))
    play(monkeypatch, ANSWERED)
    assert system.chat("Hello").status_code == 200
    assert system.chat("Hello").status_code == 429
    assert system.chat("Hello", person=system.other).status_code == 200


def test_once_the_deployment_has_spent_its_day_nothing_is_called(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMBERINTEL_DAILY_SPEND_STOP_USD", "0")
    settings.cache_clear()
    model = play(monkeypatch, ANSWERED)
    assert system.chat("Hello").status_code == 503
    assert model.requests == []
    assert charges(system) == []


def test_every_call_is_reserved_at_no_less_than_it_can_cost() -> None:
    worst = llm.ceiling_usd(SONNET, None, prompt_tokens=7_000, output_tokens=answering.MAX_OUTPUT_TOKENS)
    assert worst >= prices.cost_usd(SONNET, USED)

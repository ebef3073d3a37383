"""What is asked again because its commit was not heard of, where a limit is near."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pg8000 import InterfaceError

from common import clock, driver, entitlements
from common.advisor import turn
from common.config import settings
from common.entitlements import LIMITS
from common.llm.types import Stop, ToolCall, Usage
from tests.functions.conftest import System
from tests.functions.scripted import play
from tests.functions.site import load_small_site

NOW = datetime(2026, 5, 12, 10, 0, tzinfo=UTC)
USED = Usage(input_tokens=2_000, output_tokens=200, cache_read_tokens=4_000, cache_write_tokens=1_000)
ANSWERED = ["Gladly.", Stop("end", "", "claude", USED)]
CALL = ToolCall("c1", "query_site_data", {"target": "memberships"})


@pytest.fixture(autouse=True)
def priced(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with a price, at a fixed time."""
    monkeypatch.setattr(clock, "now", lambda: NOW)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    settings.cache_clear()
    entitlements._spent.clear()


def unheard_once(monkeypatch: pytest.MonkeyPatch, part: str) -> list[str]:
    """The first statement with `part` in it is committed by the server; its answer is lost."""
    exchange, finish = driver.Connection._exchange, driver.Connection._finish
    cuts: list[str] = []
    seen: list[driver.Connection] = []

    def unheard(connection: driver.Connection, request: Any) -> Any:
        commits = connection.last
        found = exchange(connection, request)
        if part in request.context.statement and not cuts:
            if commits:
                cuts.append(part)
                raise InterfaceError("network error")
            seen.append(connection)
        return found

    def end_unheard(connection: driver.Connection, statement: str) -> Any:
        found = finish(connection, statement)
        if statement == "commit" and connection in seen and not cuts:
            cuts.append(part)
            raise InterfaceError("network error")
        return found

    monkeypatch.setattr(driver.Connection, "_exchange", unheard)
    monkeypatch.setattr(driver.Connection, "_finish", end_unheard)
    return cuts


def charges(system: System) -> list[Any]:
    return system.database.rows("select * from usage_charges order by created_at, id")


def test_a_next_call_that_was_reserved_unheard_is_not_refused_by_its_own_reservation(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_small_site(system.database, system.owner)
    play(monkeypatch, ANSWERED)
    assert system.chat("Hello").status_code == 200
    worst, real = charges(system)[0].reserved_usd / turn.USUAL_CALLS, charges(system)[0].cost_usd
    for table in ("conversations", "usage_charges", "usage_counters"):
        system.database.run(f"delete from {table}")
    # Room for what the first call really cost and the second at its worst, and not for the first's cost once more.
    monkeypatch.setitem(LIMITS, "pro", replace(LIMITS["pro"], cost_usd=worst + real * Decimal("1.5")))
    cuts = unheard_once(monkeypatch, "with settled as")
    play(monkeypatch, ["Let me look. ", CALL, Stop("tool_use", "", "claude", USED)], ANSWERED)
    answer = system.chat("And what would you do about my plans?").json
    assert len(cuts) == 1
    assert (answer["status"], {row.state for row in charges(system)}) == ("complete", {"settled"})
    assert system.database.scalar("select sum(used) from usage_counters where counter = 'cost_usd'") == sum(
        row.cost_usd for row in charges(system)
    )


def test_a_beginning_that_was_committed_unheard_is_one_request(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMBERINTEL_REQUESTS_PER_MINUTE", "2")
    settings.cache_clear()
    play(monkeypatch, ANSWERED)
    conversation = system.chat("Hello").json["conversation_id"]
    cuts = unheard_once(monkeypatch, "insert into messages")
    answer = system.chat("And now?", conversation_id=conversation)
    assert len(cuts) == 1
    assert answer.status_code == 200
    assert system.database.scalar("select requests from request_counts") == 2
    assert {row.state for row in charges(system)} == {"settled"}

"""A statement that counts is refused by the server where a counter is at its limit, and leaves nothing."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from common import entitlements
from common.accounts import Account
from common.db import commit_with_next, user_transaction
from common.entitlements import LIMITS, Charge, Count
from common.errors import LimitReached
from common.llm.types import Stop
from tests.conftest import Database, Person, add_person

MAY, JUNE = datetime(2026, 5, 31, 23, 59, tzinfo=UTC), datetime(2026, 6, 1, 0, 1, tzinfo=UTC)


@pytest.fixture
def person(database: Database) -> Person:
    return add_person(database, "alice@x.example", tier="free")


def charge(at: datetime) -> Charge:
    return Charge("chat", "offline", "offline-1", Decimal("0.25"), at)


def reserve(database: Database, person: Person, wanted: Charge, *also: Count, commits: bool = False) -> None:
    account = Account(person.user_id, person.tenant_id, person.email, "free")
    counts = [*also, wanted.reserved(account)]
    with user_transaction(person.user_id, source=database.engine("app", 1)) as connection:
        if commits:
            commit_with_next(connection)
        entitlements.reserve(
            connection, account, wanted, session_id=None, counts=counts, now=wanted.reserved_at
        )


def use_up(database: Database, person: Person, month: str) -> None:
    database.run(
        "insert into usage_counters (tenant_id, counter, period, used) values (:t, 'cost_usd', :m, :used)",
        t=person.tenant_id, m=month, used=LIMITS["free"].cost_usd,
    )  # fmt: skip


def counters(database: Database) -> dict[tuple[str, str], Decimal]:
    rows = database.rows("select counter, cast(period as text) as period, used from usage_counters")
    return {(row.counter, row.period): row.used for row in rows}


@pytest.mark.parametrize("commits", [True, False])
def test_what_does_not_fit_leaves_nothing_even_where_the_commit_goes_with_it(
    database: Database, person: Person, commits: bool
) -> None:
    use_up(database, person, "2026-05-01")
    before = counters(database)
    turns = Count("turns", MAY.date(), Decimal(1), Decimal(40))
    with pytest.raises(LimitReached) as reached:
        reserve(database, person, charge(MAY), turns, commits=commits)
    assert reached.value.extra["limit"] == "cost_usd"
    assert (counters(database), database.rows("select 1 from usage_charges")) == (before, [])


def test_the_first_limit_that_was_reached_is_told(database: Database, person: Person) -> None:
    use_up(database, person, "2026-05-01")
    turns = Count("turns", MAY.date(), Decimal(1), Decimal(0))
    with pytest.raises(LimitReached) as reached:
        reserve(database, person, charge(MAY), turns)
    assert reached.value.extra["limit"] == "turns"


def test_a_month_that_gets_money_back_makes_no_room_in_the_next(database: Database, person: Person) -> None:
    account = Account(person.user_id, person.tenant_id, person.email, "free")
    first = charge(MAY)
    reserve(database, person, first)
    use_up(database, person, "2026-06-01")
    before = counters(database)

    def go_on() -> None:
        with user_transaction(person.user_id, source=database.engine("app", 1)) as connection:
            entitlements.settle_and_reserve(
                connection, account=account, settled=[(first, Stop("end", "offline-1", "offline"))], next_charge=charge(JUNE),
                turn_id=uuid.uuid4(), now=JUNE,
            )  # fmt: skip

    with pytest.raises(LimitReached) as reached:
        go_on()
    assert reached.value.extra["limit"] == "cost_usd"
    assert counters(database) == before
    assert [row.state for row in database.rows("select state from usage_charges")] == ["reserved"]


def test_what_fits_is_counted_and_reserved(database: Database, person: Person) -> None:
    reserve(database, person, charge(MAY), commits=True)
    assert counters(database) == {("cost_usd", "2026-05-01"): Decimal("0.25")}
    assert database.scalar("select reserved_usd from usage_charges") == Decimal("0.25")

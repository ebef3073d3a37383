"""What a warm turn asks of the database: statements by the server's log, round trips on the wire, whatever the conversation's length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa

from benchmarks.ours import Ours, free_of_cost
from benchmarks.stage import Stage, is_control
from benchmarks.wire import counted
from common import db
from common.config import settings
from common.turns import finding
from tests.conftest import Database
from tests.plans import rows_read

EARLIER = (2, 60)


@dataclass(frozen=True)
class Counts:
    statements: int
    round_trips: int


@pytest.fixture
def turns(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[Counts]]]:
    """The counts of a warm turn of each kind, in a short conversation and in a long one."""
    place = Stage(database.server, database.superuser, database.name)
    found: dict[str, list[Counts]] = {"advisor": [], "skill": []}
    with counted(database.server.socket) as (socket, wire), place.logged() as statements:
        url = database.server.url(database.name).replace(str(database.server.socket), str(socket))
        monkeypatch.setenv("MEMBERINTEL_DATABASE_URL", url)
        ours = Ours(url, database.superuser, more=True)
        with free_of_cost(ours.publisher):
            for earlier in EARLIER:
                ours.prepare(earlier)
                for kind, play in {"advisor": ours.turn, "skill": ours.skill_turn}.items():
                    play(0)
                    wire.round_trips, _ = 0, statements()
                    play(1)
                    sent = [s for s in statements() if not is_control(s)]
                    found[kind].append(Counts(len(sent), wire.round_trips))
        db.engine("app").dispose()
    yield found
    db.engine.cache_clear()
    settings.cache_clear()


@pytest.fixture
def ours(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ours]:
    url = database.server.url(database.name)
    monkeypatch.setenv("MEMBERINTEL_DATABASE_URL", url)
    yield Ours(url, database.superuser, more=True)
    db.engine("app").dispose()
    db.engine.cache_clear()
    settings.cache_clear()


def test_a_warm_turn_takes_few_statements_and_round_trips(turns: dict[str, list[Counts]]) -> None:
    assert turns["advisor"] == [Counts(statements=5, round_trips=5)] * len(EARLIER)
    assert turns["skill"] == [Counts(statements=3, round_trips=2)] * len(EARLIER)


def test_a_turns_statements_give_the_columns_that_they_name(
    ours: Ours, monkeypatch: pytest.MonkeyPatch
) -> None:
    named: dict[str, list[str]] = {}
    real = db._compiled

    def compiled(*asked: Any) -> Any:
        operation, names, row = real(*asked)
        named[operation] = list(row._fields)  # type: ignore[attr-defined]
        return operation, names, row

    monkeypatch.setattr(db, "_compiled", compiled)
    with free_of_cost(ours.publisher):
        ours.prepare(2)
        for number in range(2):  # the second is a usual one
            ours.turn(number)
    with db.engine("app").connect() as connection:
        prepared = db._opened(connection).prepared
        given = {operation: [column["name"] for column in prepared[operation].columns] for operation in named}
    assert given == named
    assert len(named) == 7  # with the context's once with the history, once without


def test_a_turns_statements_are_planned_for_any_values_however_large_the_tables(ours: Ours) -> None:
    with free_of_cost(ours.publisher):
        ours.prepare(500)
        for number in range(2):
            ours.turn(number)
    with db.engine("app").connect() as connection:
        plans = {
            row.statement: row.custom_plans
            for row in connection.exec_driver_sql(
                "select statement, custom_plans from pg_prepared_statements"
            )
            if not is_control(row.statement) and "spent_since" not in row.statement
        }
    # Five of a warm turn, and four of the first, which begins as any does and reads the history.
    assert list(plans.values()) == [0] * 9


def test_what_a_turn_finds_does_not_grow_with_the_customers_conversations(ours: Ours) -> None:
    with free_of_cost(ours.publisher):
        for _ in range(2):
            ours.prepare(2)
    add = "insert into conversations (id, user_id, title, created_at, last_turn_at) select gen_random_uuid(), :u, 'x', now(), now()"
    with ours._superuser.begin() as connection:
        connection.execute(sa.text(f"{add} from generate_series(1, 2000)"), {"u": ours.user_id})
    asked = {
        "user_id": ours.user_id,
        "conversation_id": ours.conversation_id,
        "client_id": "c",
        "client_turn_id": "t",
    }
    with db.user_transaction(ours.user_id, local=db.ONE_PLAN) as connection:
        read = {
            which: rows_read(connection, one, asked, "conversations") for which, one in finding._FIND.items()
        }
    assert read == {(False, False): 1, (False, True): 1, (True, False): 0, (True, True): 0}

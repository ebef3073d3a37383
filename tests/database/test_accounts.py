"""Finding the caller, together with what is asked of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from common import accounts
from common.accounts import Account
from common.auth import Identity
from common.config import Settings
from common.db import transaction
from common.errors import Forbidden, Unauthenticated
from common.rate_limit import TooManyRequests
from tests.conftest import NOW, Database, add_person

CONFIG = Settings(requests_per_minute=5)


@pytest.fixture(autouse=True)
def nobody_met() -> Iterator[None]:
    accounts._met.clear()
    yield
    accounts._met.clear()


def identity(subject: str) -> Identity:
    return Identity("local", subject, subject, NOW)


def enter(
    database: Database, subject: str, asked: list[uuid.UUID], config: Settings = CONFIG
) -> tuple[Account, Any]:
    """The account, and the names of the sites that were seen; `asked` gets whom `ask` was told."""
    with transaction("app", source=database.engine("app", 1)) as connection:

        def ask(user_id: uuid.UUID) -> Any:
            asked.append(user_id)
            sites = sa.text(
                "select user_id, current_setting('work_mem') as memory from sites where user_id = :u"
            )
            return [tuple(row) for row in connection.execute(sites, {"u": user_id})]

        return accounts.enter_asking(
            connection, identity(subject), config, NOW, ask, local={"work_mem": "7MB"}
        )


def requests(database: Database, user_id: uuid.UUID) -> object:
    return database.scalar("select requests from request_counts where user_id = :u", u=user_id)


def test_whoever_was_met_is_asked_of_in_the_same_round_trip(database: Database) -> None:
    person = add_person(database, "alice@x.example")
    asked: list[uuid.UUID] = []
    for _ in range(3):
        account, seen = enter(database, "alice@x.example", asked)
        assert account == Account(person.user_id, person.tenant_id, person.email, "pro")
        assert seen == [(person.user_id, "7MB")]
    assert asked == [person.user_id] * 3
    assert requests(database, person.user_id) == 3


def test_an_identity_that_is_another_user_by_now_sees_nothing_of_the_first(database: Database) -> None:
    first, second = (add_person(database, f"{name}@x.example") for name in ("alice", "bob"))
    asked: list[uuid.UUID] = []
    enter(database, "alice@x.example", asked)
    database.run("update users set subject = 'gone' where id = :id", id=first.user_id)
    database.run("update users set subject = 'alice@x.example' where id = :id", id=second.user_id)
    found = enter(database, "alice@x.example", asked)
    assert (found[0].user_id, found[1]) == (second.user_id, [(second.user_id, "7MB")])
    assert asked == [first.user_id, first.user_id, second.user_id]
    assert requests(database, second.user_id) == 1


def test_whoever_is_gone_is_unknown_again(database: Database) -> None:
    person = add_person(database, "alice@x.example")
    asked: list[uuid.UUID] = []
    enter(database, "alice@x.example", asked)
    database.run("update users set subject = 'gone' where id = :id", id=person.user_id)
    with pytest.raises(Forbidden):
        enter(database, "alice@x.example", asked)
    assert accounts._met == {}

    asked.clear()
    created = enter(database, "alice@x.example", asked, Settings(first_login="create_free"))
    assert created[0].tier == "free"
    assert created[1] == []
    assert asked == [created[0].user_id]


def test_the_limit_of_requests_holds_for_whoever_was_met(database: Database) -> None:
    person = add_person(database, "alice@x.example")
    for _ in range(5):
        enter(database, "alice@x.example", [])
    with pytest.raises(TooManyRequests):
        enter(database, "alice@x.example", [])
    assert requests(database, person.user_id) == 5


@pytest.mark.parametrize("met", [True, False])
def test_a_user_who_is_erased_while_the_request_waits_is_signed_out(database: Database, met: bool) -> None:
    person = add_person(database, "alice@x.example")
    enter(database, "alice@x.example", [])
    if not met:
        accounts._met.clear()
    with ThreadPoolExecutor(1) as another, database.superuser.connect() as erasing:
        with erasing.begin():
            erasing.execute(sa.text("delete from users where id = :id"), {"id": person.user_id})
            waiting = another.submit(enter, database, "alice@x.example", [])
            while not database.scalar("select count(*) from pg_locks where not granted"):
                assert not waiting.done()
        with pytest.raises(Unauthenticated):
            waiting.result()


def test_only_so_many_identities_are_remembered(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "_MOST_MET", 2)
    for name in ("alice", "bob", "carol"):
        add_person(database, f"{name}@x.example")
        enter(database, f"{name}@x.example", [])
    assert [subject for _, subject in accounts._met] == ["carol@x.example"]

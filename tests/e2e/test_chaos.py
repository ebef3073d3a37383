"""During a load of chats the function is killed, PostgreSQL restarted, the provider down and the clock forwarded: what was acknowledged is
there, once, and what was deleted stays deleted."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from common import events
from common.migrations import run as migrations
from local import postgres
from local.issuer import ISSUER, Issuer
from tests.conftest import Database, add_person
from tests.contract.deployed import settings, trusted, until
from tests.e2e.chaos import Answered, Chat, Ledger, Load, Model, Topic, answer_to, at
from tests.functions.conftest import System, running_system
from tests.functions.site import load_small_site
from tests.stubs.anthropic_server import scripted

pytestmark = pytest.mark.slow
CUSTOMERS, TURNS = 8, 9


@pytest.fixture
def trust(tmp_path: Path) -> Iterator[tuple[Issuer, str]]:
    with trusted(tmp_path) as made:
        yield made


@pytest.fixture
def own_system(
    tmp_path: Path, trust: tuple[Issuer, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[System]:
    """A system on a server of its own, durable: what was committed must survive a crash."""
    for part in (tmp_path, tmp_path.parent):
        part.chmod(0o755)
    with postgres.server(tmp_path) as server:
        postgres.create_database(server)
        migrations.migrate(sa.create_engine(server.url(role="memberintel_owner"), poolclass=sa.NullPool))
        database = Database(server, postgres.DATABASE)
        yield from running_system(database, trust, monkeypatch)
        database.dispose()


def test_nothing_that_was_acknowledged_is_lost(
    own_system: System, trust: tuple[Issuer, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, model = own_system, Model()
    people = [add_person(system.database, f"{n}@demo.example", issuer=ISSUER) for n in range(CUSTOMERS)]
    for person in people:
        load_small_site(system.database, person)
    topic = Topic(system)
    monkeypatch.setattr(events, "publisher", lambda _config: topic)
    with scripted() as provider, topic.served() as published:
        provider.answer = model
        more = {
            "ANTHROPIC_API_KEY": "sk-test",
            "ANTHROPIC_BASE_URL": provider.url,
            "MEMBERINTEL_LOCAL_DISPATCHER_URL": published,
            "MEMBERINTEL_REQUESTS_PER_MINUTE": "100000",
        }
        chat = Chat(settings(system.database, trust, **more), tmp_path)
        chat.start()
        try:
            load = Load(system, chat)
            customers = load.run(people, range(TURNS))
            torment(system, load, model, chat)
            for customer in customers:
                customer.join()
            assert not load.failures, load.failures
            drain(system)
        finally:
            chat.kill()
    check(system.database, load.ledger)


def torment(system: System, load: Load, model: Model, chat: Chat) -> None:
    """One calamity after another, each once some more turns were answered."""

    def kill() -> None:
        chat.kill()
        # Sixty seconds later, as far as the turns that it left running are concerned.
        system.database.run(
            "update turns set lease_until = now() - interval '1 second' where status = 'running'"
        )
        chat.start()

    def restart(how: signal.Signals) -> None:
        system.database.superuser.dispose()
        postgres.restart(system.database.server.folder, how)

    def outage() -> None:
        model.down = True
        until(lambda: model.refused >= CUSTOMERS)
        model.down = False

    def forward() -> None:
        later = datetime.now(UTC) + timedelta(days=1)
        for job in ("relay_events", "backfill_wrap_ups", "nightly_refresh"):
            scheduled(system, job, later)

    calamities = [
        kill,
        lambda: restart(signal.SIGINT),
        outage,
        forward,
        lambda: restart(signal.SIGQUIT),
        kill,
        forward,
        lambda: (kill(), restart(signal.SIGQUIT)),
    ]
    for number, calamity in enumerate(calamities, 1):
        load.answered(number * CUSTOMERS * TURNS // (len(calamities) + 1))
        calamity()


def drain(system: System) -> None:
    """Let the hours pass until all events have had their effect."""
    later = datetime.now(UTC) + timedelta(days=2)

    def emptied() -> bool:
        system.internal("relay_events", at(later))
        for row in system.database.rows("select id, type, version from outbox_events"):
            event = events.Event(row.id, row.type, row.version)
            body = {**events.write_push(event), **(at(later) if event.type == "session-ended" else {})}
            assert system.internal(events.CONSUMERS[event.type], body).status_code in {200, 409, 503}
        return system.database.scalar("select count(*) from outbox_events") == 0

    until(emptied, 30)
    scheduled(system, "backfill_wrap_ups", later)


def scheduled(system: System, job: str, moment: datetime) -> None:
    """Call `job` as Scheduler does: again where it could not be carried out now."""

    def called() -> bool:
        status = system.internal(job, at(moment)).status_code
        assert status in {200, 409, 503}
        return status == 200

    until(called, 30)


def check(database: Database, ledger: Ledger) -> None:
    assert (
        len(ledger.answered)
        == len({(a.person.email, a.turn_id) for a in ledger.answered})
        == CUSTOMERS * TURNS
    )
    assert ledger.retries > CUSTOMERS, "the calamities met no turns"
    assert ledger.deleted_snapshots
    deleted = {"ids": sorted(ledger.deleted_conversations)}
    assert len(ledger.deleted_conversations) == CUSTOMERS * (TURNS // 6)
    for table in ("conversations", "messages", "turns", "sessions", "message_tool_results", "outbox_events"):
        column = "id" if table == "conversations" else "conversation_id"
        left = f"select count(*) from {table} where {column} = any(cast(:ids as uuid[]))"
        assert database.scalar(left, **deleted) == 0, table
    snapshots = "select count(*) from message_tool_results where id = any(cast(:ids as uuid[]))"
    assert database.scalar(snapshots, ids=sorted(ledger.deleted_snapshots)) == 0
    kept = [a for a in ledger.answered if a.conversation_id not in ledger.deleted_conversations]
    lost = [wrong for answered in kept for wrong in _wrong(database, answered, ledger)]
    assert lost == []
    helpful = {a.message_id for a in kept} & ledger.helpful
    found = database.rows("select message_id from message_feedback where helpful")
    assert {str(row.message_id) for row in found} == helpful
    assert database.scalar("select count(*) from turns where status = 'running'") == 0
    assert database.scalar("select count(*) from usage_charges where state = 'reserved'") == 0
    for row in database.rows(COUNTED):
        assert row.used == row.charged, "a tenant's counter and its charges differ"


COUNTED = """
    select u.used, c.charged from usage_counters u join (
        select tenant_id, sum(coalesce(cost_usd, reserved_usd)) as charged from usage_charges group by tenant_id) c using (tenant_id)
    where u.counter = 'cost_usd'
"""


def _wrong(database: Database, answered: Answered, ledger: Ledger) -> Iterator[Any]:
    """What is not as the client was told."""
    whole = answer_to(answered.question)
    if answered.text != whole if answered.status == "complete" else not whole.startswith(answered.text):
        yield answered, "another's answer"
    turns = database.rows(
        "select id, status from turns where user_id = :user_id and client_turn_id = :turn_id",
        user_id=answered.person.user_id,
        turn_id=answered.turn_id,
    )
    if [row.status for row in turns] != [answered.status]:
        yield answered, f"turns {turns}"
        return
    said = database.rows(
        "select id, role, text, status from messages where turn_id = :turn_id order by position",
        turn_id=turns[0].id,
    )
    if [row.role for row in said] != ["user", "assistant"]:
        yield answered, f"messages {[row.role for row in said]}"
        return
    told = (str(said[1].id), said[1].status, said[1].text)
    if told != (answered.message_id, answered.status, answered.text):
        yield answered, f"stored {told}"
    results = database.rows(
        "select id, tool_use_id, tool_output from message_tool_results where message_id = :id", id=said[1].id
    )
    for call, output in answered.tools.items():
        wanted = [] if answered.message_id in ledger.deleted_snapshots.values() else [output]
        stored = [row.tool_output for row in results if row.tool_use_id == call]
        if json.dumps(stored, sort_keys=True) != json.dumps(wanted, sort_keys=True):
            yield answered, f"{len(stored)} snapshots of {call}"

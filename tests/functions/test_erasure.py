"""An erased customer is gone from every table, cache, event and copy; nothing that was running brings them back, and no backup does."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery
from werkzeug.test import TestResponse

from common import db, erasure
from common.config import settings
from common.erasure_ledger import FileStore
from common.memory import snapshots
from common.warehouse.bigquery import Warehouse
from common.warehouse.schemas import STREAM_TABLE
from local.cli import main
from local.issuer import ISSUER
from tests.conftest import NOW, Database, Person, add_person
from tests.database.rows import fill_every_table
from tests.functions.conftest import System
from tests.functions.scripted import play
from tests.functions.site import load_small_site
from tests.functions.test_nothing_is_lost import LIST_PLANS
from tests.rows import Candidate, add_answer, add_session, add_turn, add_wrap_up
from tests.stubs.bigquery_server import BigQueryServer

CANARY = "kanarienvogel-7301"


def ask(
    system: System, method: str, path: str, body: Any = None, person: Person | None = None
) -> TestResponse:
    return system.client("brain").open(
        path, method=method, json=body, headers=system.token(person or system.owner)
    )


def erase(system: System, person: Person | None = None) -> dict[str, Any]:
    response = ask(system, "DELETE", "/v1/me", person=person)
    assert response.status_code == 200, response.text
    receipt: dict[str, Any] = response.json
    return receipt


def tables(database: Database) -> list[str]:
    return [
        row[0]
        for row in database.rows(
            "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')"
            " and relname <> 'alembic_version' order by 1"
        )
    ]


def ids_of(database: Database, person: Person) -> set[str]:
    """Every uuid that stands in a row of theirs, but for the ids of the knowledge base, which are nobody's."""
    found = {str(person.user_id), str(person.tenant_id)}
    for table in tables(database):
        for (row,) in database.rows(f"select cast(to_jsonb(x) as text) from {table} x"):
            fields = json.loads(row)
            if fields.get("user_id") == str(person.user_id):
                found |= {v for k, v in fields.items() if is_uuid(v) and k != "entry_id"}
    return found


def is_uuid(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(uuid.UUID(value)) and len(value) == 36
    except ValueError:
        return False


def traces(database: Database, needles: set[str]) -> list[tuple[str, str]]:
    """Where any of `needles` stands, whatever the table, the row's owner and the column."""
    found = []
    for table in tables(database):
        for (row,) in database.rows(f"select lower(cast(to_jsonb(x) as text)) from {table} x"):
            found += [(table, needle) for needle in needles if needle.lower() in row]
    return found


def plant(system: System, person: Person) -> None:
    """The canary wherever this customer can write."""
    database = system.database
    fill_every_table(database, person, CANARY)
    database.run("update session_logs set decisions = '[]', open_items = '[]', new_context = '[]'")
    database.run("update brain_document_revisions set version = 0")
    load_small_site(database, person)
    database.run("update sites set name = :name where id = :id", name=f"Club {CANARY}", id=person.site_id)
    database.run(
        "update members set name = :c || ' member', email = :c || '@club.example' where user_id = :id",
        c=CANARY,
        id=person.user_id,
    )
    said = {
        "type": "text",
        "text": f"Our code word is {CANARY}, please remember that. How many active members do I have?",
    }
    first = (
        system.client("chat")
        .post(
            "/chat",
            json={
                "id": f"tab-{CANARY}",
                "messages": [{"id": f"turn-{CANARY}", "role": "user", "parts": [said]}],
            },
            headers={**system.token(person), "Accept": "application/json"},
        )
        .json
    )
    system.chat(f"{CANARY} again: how many active members do I have?", person=person)  # its event stays
    for method, path, body in (
        ("POST", "/v1/brain/memories", {"content": f"A memory of {CANARY}"}),
        ("PUT", "/v1/brain/documents/soul", {"content": f"The soul of {CANARY}"}),
        ("PUT", "/v1/brain/documents/bible", {"content": f"The bible of {CANARY}"}),
        ("PUT", "/v1/brain/documents/bible", {"content": f"The second bible of {CANARY}"}),
        ("PUT", f"/v1/messages/{first['message_id']}/feedback", {"helpful": True}),
        ("POST", f"/v1/conversations/{first['conversation_id']}/end", {}),
    ):
        assert ask(system, method, path, body, person).status_code < 300, path
    session = add_session(database, person, NOW)
    wrap_up = add_wrap_up(database, person, session, NOW, "a wrap-up")
    database.run("update session_logs set decisions = '[]', open_items = '[]', new_context = '[]'")
    edit = {"summary": f"Edited: {CANARY}", "decisions": [{"text": f"Decided {CANARY}", "message_ids": []}]}
    assert ask(system, "PATCH", f"/v1/session-logs/{wrap_up}", edit, person).status_code == 200
    database.run(
        "update outbox_events set dead_at = now(), attempts = 5, last_error = '23505' where id in"
        " (select id from outbox_events where user_id = :id limit 1)",
        id=person.user_id,
    )


def rows_of(database: Database, person: Person) -> dict[str, int]:
    """How many rows of theirs each table has."""
    counts = {}
    for table in tables(database):
        rows = [json.loads(r[0]) for r in database.rows(f"select cast(to_jsonb(x) as text) from {table} x")]
        own = [r for r in rows if r.get("user_id") == str(person.user_id)]
        if table == "users":
            own = [r for r in rows if r["id"] == str(person.user_id)]
        elif table == "tenants":
            own = [r for r in rows if r["id"] == str(person.tenant_id)]
        elif table == "usage_counters":
            own = [r for r in rows if r["tenant_id"] == str(person.tenant_id)]
        counts[table] = len(own)
    return counts


# -- the whole of it -----------------------------------------------------------------------------------------------------------------


def test_nothing_of_an_erased_customer_is_left_and_the_receipt_says_what_went(system: System) -> None:
    database, owner = system.database, system.owner
    plant(system, owner)
    fill_every_table(database, system.other, "other")
    needles = ids_of(database, owner) | {owner.email, CANARY}
    before, untouched = rows_of(database, owner), rows_of(database, system.other)
    assert len(needles) > 50
    empty = {"brain_terms", "entry_performance", "job_runs", "export_days"}  # nobody's
    assert {t for t, n in before.items() if n == 0} == empty
    assert {table for table, _ in traces(database, needles)} == before.keys() - empty

    receipt = erase(system)

    assert traces(database, needles) == []
    assert {t: r["deleted"] for t, r in receipt["tables"].items()} == before
    assert {r["left"] for r in receipt["tables"].values()} == {0}
    assert receipt["complete"] is True
    erased_at = datetime.fromisoformat(receipt["erased_at"])
    assert datetime.fromisoformat(receipt["backups_expire_at"]) - erased_at == timedelta(days=30)
    after = rows_of(database, system.other)
    assert after == untouched
    assert ask(system, "GET", "/v1/conversations", person=system.other).json["items"] != []


def test_the_ledger_holds_no_identity_in_the_clear(system: System) -> None:
    erase(system)
    content = FileStore(_path()).read().decode()
    assert len(content.splitlines()) == 2
    for clear in (system.owner.email, str(system.owner.user_id), ISSUER):
        assert clear not in content


def _path() -> Path:
    return Path(settings().erasure_ledger)


def test_a_tenant_with_another_user_stays_with_its_counters(system: System) -> None:
    database, owner = system.database, system.owner
    colleague = uuid.uuid4()
    database.run(
        "insert into users (id, tenant_id, email, issuer, subject) values (:id, :t, 'c@demo.example', :i, 'c@demo.example')",
        id=colleague,
        t=owner.tenant_id,
        i=ISSUER,
    )
    system.chat("Hello there")
    receipt = erase(system)
    assert receipt["complete"] is True
    assert receipt["tables"]["users"]["deleted"] == 1
    assert receipt["tables"]["tenants"]["deleted"] == receipt["tables"]["usage_counters"]["deleted"] == 0
    names = database.rows("select name from tenants where id = :id", id=owner.tenant_id)
    assert [row[0] for row in names] == [str(owner.tenant_id)], "it was called by the erased one's address"
    assert database.scalar("select count(*) from usage_counters where tenant_id = :id", id=owner.tenant_id)


@pytest.mark.parametrize("left", ["id", "email", "words"])
def test_the_receipt_does_not_hide_what_is_left(system: System, left: str) -> None:
    words = "We will raise the price of the Inner Circle to 129 dollars in June"
    system.chat(words)
    planted = {"id": str(system.owner.user_id), "email": system.owner.email.upper(), "words": words}[left]
    system.database.run(
        "insert into job_runs (job, step, outcome, details, started_at) values"
        " ('x', 'x', 'done', jsonb_build_object('note', cast(:note as text)), now())",
        note=f"about {planted}",
    )
    receipt = erase(system)
    assert receipt["complete"] is False
    assert {t: r["left"] for t, r in receipt["tables"].items() if r["left"]} == {"job_runs": 1}


def test_an_erased_admins_looks_stay_noted_without_their_name(system: System) -> None:
    for actor in (system.owner.email.upper(), f"command:{system.owner.email}", "admin@club.example"):
        system.database.run(
            "insert into access_log (actor, action, details, created_at) values (:actor, 'triggers', '{}', now())",
            actor=actor,
        )
    receipt = erase(system)
    assert receipt["complete"] is True
    assert receipt["tables"]["access_log"] == {"deleted": 0, "anonymised": 2, "left": 0}
    actors = system.database.rows("select actor from access_log order by actor")
    assert actors == [("admin@club.example",), ("erased",), ("erased",)]


def test_what_others_wrote_about_the_erased_is_theirs(system: System) -> None:
    system.chat(f"My member {system.owner.email} asks for a refund", person=system.other)
    assert erase(system)["complete"] is True
    assert traces(system.database, {system.owner.email}) != []


def test_nobody_can_erase_or_look_for_somebody_else(system: System) -> None:
    attempts = [
        (system.owner.user_id, "select erase_user(:other)"),
        (system.owner.user_id, "select * from erasable_tables() where :other is not null"),
    ]
    for user_id, sql in attempts:
        with pytest.raises(sa.exc.DBAPIError), db.user_transaction(user_id) as connection:
            connection.execute(sa.text(sql), {"other": system.other.user_id})
    with pytest.raises(sa.exc.DBAPIError), db.transaction("app") as connection:
        connection.execute(sa.text("select erase_user(:other)"), {"other": system.other.user_id})
    assert system.database.scalar("select count(*) from users") == 2


def test_the_app_gains_no_sight_by_calling_itself_erasing(system: System) -> None:
    system.chat("Hello there", person=system.other)
    with db.user_transaction(system.owner.user_id) as connection:
        connection.execute(sa.text("select set_config('app.erasing', 'on', true)"))
        assert connection.scalar(sa.text("select count(*) from messages")) == 0


# -- what was running ----------------------------------------------------------------------------------------------------------------


def gone(system: System) -> None:
    assert traces(system.database, {str(system.owner.user_id), system.owner.email, CANARY}) == []


def test_a_turn_that_runs_meanwhile_writes_nothing(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    load_small_site(system.database, system.owner)
    play(monkeypatch, [LIST_PLANS], ["You have ", lambda: erase(system), f"two plans, {CANARY}."])
    response = system.chat(f"plans {CANARY}?")
    assert response.json["status"] != "complete"
    gone(system)
    assert system.publisher.published == []


def test_a_turn_that_calls_a_tool_afterwards_writes_nothing(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_small_site(system.database, system.owner)
    play(monkeypatch, [lambda: erase(system), LIST_PLANS], [f"No plans, {CANARY}."])
    system.chat(f"plans {CANARY}?")
    gone(system)


def test_a_wrap_up_that_is_being_written_is_not_kept(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = system.chat(
        f"We decided to raise the price of the Inner Circle from 99 to 129 dollars in June, because {CANARY} is worth it,"
        " and to tell every member by mail two weeks before."
    ).json
    assert ask(system, "POST", f"/v1/conversations/{answer['conversation_id']}/end", {}).status_code == 200
    draft = {
        "summary": f"They raised the price, {CANARY}.", "decisions": [], "open_items": [], "new_context": [],
        "next_session_note": "",
    }  # fmt: skip
    ran: list[int] = []
    play(monkeypatch, [lambda: (ran.append(1), erase(system)), json.dumps(draft)])
    for event in system.publisher.published:
        assert system.deliver(event).status_code == 200
    assert ran == [1]
    gone(system)


def test_tool_results_that_are_delivered_afterwards_are_dropped(system: System) -> None:
    load_small_site(system.database, system.owner)
    system.chat("How many active members do I have?")
    (event,) = [e for e in system.publisher.published if e.type == "tool-results"]
    erase(system)
    assert system.deliver(event).json == {"outcome": "gone"}
    system.internal("relay_events", {})
    gone(system)


def test_an_erasure_waits_for_results_that_are_being_stored_and_takes_them_along(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_small_site(system.database, system.owner)
    system.chat("How many active members do I have?")
    (event,) = [e for e in system.publisher.published if e.type == "tool-results"]
    storing, go_on = hold_the_storing(system, monkeypatch)
    outcomes: list[Any] = []
    delivery = in_thread(lambda: outcomes.append(system.deliver(event).json))
    assert storing.wait(60)
    erasure_ = in_thread(lambda: outcomes.append(erase(system)["complete"]))
    until_somebody_waits_for_a_lock(system.database)
    go_on.set()
    delivery.join(60)
    erasure_.join(60)
    # They may stand in each other's way, and then either goes first.
    assert outcomes in ([{"outcome": "done"}, True], [True, {"outcome": "gone"}])
    gone(system)


def test_a_conversation_is_deleted_while_its_results_are_being_stored(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_small_site(system.database, system.owner)
    conversation = system.chat("How many active members do I have?").json["conversation_id"]
    (event,) = [e for e in system.publisher.published if e.type == "tool-results"]
    storing, go_on = hold_the_storing(system, monkeypatch)
    statuses: dict[str, int] = {}
    delivery = in_thread(lambda: statuses.update(delivered=system.deliver(event).status_code))
    assert storing.wait(60)
    path = f"/v1/conversations/{conversation}"
    headers = system.token(system.owner)
    deletion = in_thread(
        lambda: statuses.update(deleted=system.client("brain").delete(path, headers=headers).status_code)
    )
    until_somebody_waits_for_a_lock(system.database)
    go_on.set()
    delivery.join(60)
    deletion.join(60)
    assert statuses == {"delivered": 200, "deleted": 200}
    assert system.database.scalar("select count(*) from message_tool_results") == 0
    assert system.database.scalar("select count(*) from outbox_events where type = 'tool-results'") == 0


def hold_the_storing(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> tuple[threading.Event, threading.Event]:
    """Have the consumer of tool results stand still once it has locked its event: set when it does, and to let it go on."""
    storing, go_on = threading.Event(), threading.Event()
    store = snapshots.persist_snapshots

    def slowly(connection: sa.Connection, *arguments: Any) -> None:
        connection.scalar(sa.text("select cast(:n as int)"), {"n": 1})  # takes the lock along
        storing.set()
        assert go_on.wait(60)
        store(connection, *arguments)

    system.client("persist_tool_results")
    patch_everywhere(monkeypatch, db.commit_with_next, lambda _connection: None)  # it would go with that
    patch_everywhere(monkeypatch, store, slowly)
    return storing, go_on


def patch_everywhere(monkeypatch: pytest.MonkeyPatch, old: Any, new: Any) -> None:
    """Replace `old` in every module that imported it: functions-framework loads a function's file as a module of its own."""
    for namespace in [o for o in gc.get_referrers(old) if isinstance(o, dict)]:
        for name in [n for n, v in namespace.items() if v is old and isinstance(n, str)]:
            monkeypatch.setitem(namespace, name, new)


def in_thread(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def until_somebody_waits_for_a_lock(database: Database) -> None:
    for _ in range(100_000):
        if database.scalar("select count(*) from pg_stat_activity where wait_event_type = 'Lock'"):
            return
    raise AssertionError("nobody waits")


@pytest.mark.parametrize("known", [False, True])
def test_a_turn_that_begins_while_the_customer_is_being_erased_is_refused(
    system: System, known: bool
) -> None:
    if known:
        system.chat("Hello")
    statuses: list[int] = []
    with db.user_transaction(system.owner.user_id, role="owner") as connection:
        connection.execute(sa.text("select erase_user(:id)"), {"id": system.owner.user_id})
        turn = in_thread(lambda: statuses.append(system.chat(f"Hello {CANARY}").status_code))
        until_somebody_waits_for_a_lock(system.database)
    turn.join(60)
    assert statuses == [401]
    gone(system)


# -- afterwards ----------------------------------------------------------------------------------------------------------------------


def later_token(system: System, seconds: int = 5) -> dict[str, str]:
    token = system.issuer.customer_token(
        system.owner.email, now=datetime.now(UTC) + timedelta(seconds=seconds)
    )
    return {"Authorization": f"Bearer {token}", "Accept": "application/json"}


def test_a_token_from_before_is_refused_whoever_asks(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMBERINTEL_FIRST_LOGIN", "create_free")
    settings.cache_clear()
    before = system.token(system.owner)
    assert system.chat("Hello").status_code == 200
    erase(system)
    for method, path in (("GET", "/v1/conversations"), ("GET", "/v1/me/export"), ("DELETE", "/v1/me")):
        assert system.client("brain").open(path, method=method, headers=before).status_code == 401
    assert system.client("chat").post("/chat", json={"message": "hi"}, headers=before).status_code == 401
    assert system.database.scalar("select count(*) from users") == 1  # no new customer of an old token


def test_a_token_from_afterwards_is_a_stranger_or_a_new_customer_with_nothing(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = system.chat(f"Remember {CANARY}").json
    system.chat(
        "And again", conversation_id=answer["conversation_id"]
    )  # its history is in this process's cache
    before = system.token(system.owner)
    erase(system)
    after = later_token(system)
    brain, chat = system.client("brain"), system.client("chat")
    assert brain.get("/v1/usage", headers=after).status_code == 403
    monkeypatch.setenv("MEMBERINTEL_FIRST_LOGIN", "create_free")
    settings.cache_clear()
    assert brain.get("/v1/usage", headers=after).status_code == 200
    assert brain.get("/v1/conversations", headers=after).json["items"] == []
    conversation = answer["conversation_id"]
    assert brain.get(f"/v1/conversations/{conversation}", headers=after).status_code == 404
    again = {"message": "What did I say?", "conversation_id": conversation}
    assert chat.post("/chat", json=again, headers=after).status_code == 404
    model = play(monkeypatch, ["I do not know you."])
    assert chat.post("/chat", json={"message": "What did I say?"}, headers=after).status_code == 200
    assert CANARY not in model.prompt + "".join(m.text for m in model.requests[-1].messages)
    assert brain.get("/v1/usage", headers=before).status_code == 401


def test_a_restored_backup_is_erased_again(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    database = system.database
    plant(system, system.owner)
    needles = ids_of(database, system.owner) | {system.owner.email, CANARY}
    before = system.token(system.owner)
    backup = postgres_tool(database, "pg_dump", "--format=custom")
    erase(system)
    stays = add_person(database, "later@demo.example", issuer=ISSUER)
    for role in ("app", "jobs", "owner"):
        db.engine(role).dispose()
    database.dispose()
    postgres_tool(database, "pg_restore", "--clean", "--if-exists", input=backup)
    assert traces(database, needles) != []
    # Even before it is erased again, nobody gets in with what they had.
    assert system.client("brain").get("/v1/usage", headers=before).status_code == 401
    for expected in ("1 users", "0 users"):
        assert main(["erase", "--reapply", "--data", os.environ["MEMBERINTEL_ERASURE_LEDGER"] + ".d"]) == 0
        assert expected in capsys.readouterr().out
    assert traces(database, needles) == []
    assert database.scalar("select count(*) from users where id = :id", id=system.other.user_id) == 1
    assert database.scalar("select count(*) from users where id = :id", id=stays.user_id) == 0  # not in it


def postgres_tool(database: Database, tool: str, *arguments: str, input: bytes | None = None) -> bytes:
    program = database.server.psql().parent / tool
    done = subprocess.run(
        [program, *arguments, "--dbname", database.server.libpq_url(database.name)],
        input=input, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return done.stdout


def test_reapply_leaves_a_customer_who_came_back(system: System) -> None:
    erase(system)
    system.database.run(
        "insert into users (tenant_id, email, issuer, subject, created_at) values (:t, :e, :i, :e, now() + interval '1 minute')",
        t=system.other.tenant_id,
        e=system.owner.email,
        i=ISSUER,
    )
    assert list(erasure.reapply(settings(), datetime.now(UTC))) == []


def test_an_operator_erases_by_address(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    system.chat(f"Hello {CANARY}")
    capsys.readouterr()
    data = os.environ["MEMBERINTEL_ERASURE_LEDGER"] + ".d"
    before = system.token(system.owner)
    assert main(["erase", "--user", system.owner.email, "--data", data]) == 0
    assert json.loads(capsys.readouterr().out)["complete"] is True
    gone(system)
    assert system.client("brain").get("/v1/usage", headers=before).status_code == 401
    assert main(["erase", "--user", system.owner.email, "--data", data]) == 1
    assert "no user" in capsys.readouterr().err


# -- all or nothing ------------------------------------------------------------------------------------------------------------------


def test_without_its_ledger_nothing_is_erased(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMBERINTEL_ERASURE_LEDGER")
    settings.cache_clear()
    assert ask(system, "DELETE", "/v1/me").status_code == 500
    assert system.database.scalar("select count(*) from users") == 2


def test_an_erasure_that_cannot_be_noted_is_undone(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(FileStore, "extend", full)
    assert ask(system, "DELETE", "/v1/me").status_code == 503
    assert system.database.scalar("select count(*) from users") == 2
    assert ask(system, "GET", "/v1/usage").status_code == 200


@pytest.fixture
def copy(system: System, monkeypatch: pytest.MonkeyPatch) -> Any:
    """BigQuery's copy, with rows of both customers in each table that names users, and in the streamed one."""
    monkeypatch.setenv("MEMBERINTEL_BIGQUERY_DATASET", "p.memberintel")
    settings.cache_clear()
    with BigQueryServer() as server:
        client = bigquery.Client(
            project="p", credentials=AnonymousCredentials(), client_options={"api_endpoint": server.url}
        )
        monkeypatch.setattr(erasure, "warehouse", lambda _config: Warehouse(client, "p.memberintel"))
        messages = {}
        for person in (system.owner, system.other):
            session = add_session(system.database, person, NOW)
            turn = add_turn(system.database, person, session, NOW)
            candidates = [Candidate(uuid.uuid4()), Candidate(uuid.uuid4())]
            messages[person.email] = add_answer(system.database, person, session, NOW, candidates, turn=turn)
        for table in ("retrieval_events", "usage_charges", "snapshots", "wrap_ups"):
            server.state.partitions[table, "20260512"] = [
                {"user_id": str(p.user_id)} for p in (system.owner, system.other, system.owner)
            ]
        server.state.partitions[STREAM_TABLE, "20260512"] = [
            {"message_id": str(m)} for m in messages.values()
        ]
        server.state.partitions["entry_performance", "20260512"] = [{"entry_id": "x"}]
        yield server.state


def test_the_copy_in_bigquery_is_erased_and_stands_in_the_receipt(system: System, copy: Any) -> None:
    receipt = erase(system)
    named = {t: r for t, r in receipt["tables"].items() if t.startswith("bigquery.")}
    two, one = ({"deleted": n, "anonymised": 0, "left": 0} for n in (2, 1))
    assert named == {
        "bigquery.retrieval_events": two, "bigquery.usage_charges": two, "bigquery.snapshots": two,
        "bigquery.wrap_ups": two, f"bigquery.{STREAM_TABLE}": one,
    }  # fmt: skip
    for table in ("retrieval_events", "usage_charges", "snapshots", "wrap_ups"):
        assert copy.rows(table) == [{"user_id": str(system.other.user_id)}]
    assert len(copy.rows(STREAM_TABLE)) == len(copy.rows("entry_performance")) == 1


def test_while_bigquery_refuses_nothing_is_erased(system: System, copy: Any) -> None:
    copy.fail = lambda table: "no" if table == "wrap_ups" else None
    assert ask(system, "DELETE", "/v1/me").status_code == 503
    assert system.database.scalar("select count(*) from users") == 2
    assert ask(system, "GET", "/v1/usage").status_code == 200, "not in the ledger either"


def test_an_export_that_runs_puts_the_erasure_off(system: System, copy: Any) -> None:
    with system.database.superuser.begin() as connection:
        connection.execute(sa.text("select pg_advisory_xact_lock(hashtext('job:export_bigquery'))"))
        response = ask(system, "DELETE", "/v1/me")
    assert response.status_code == 503
    assert "export" in response.json["detail"]
    assert erase(system)["complete"] is True

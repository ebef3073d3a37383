"""HEARTBEAT: by template, from the metrics, for each site."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from common.errors import AppError
from common.jobs import Run
from common.memory import heartbeat
from common.memory.heartbeat import refresh_heartbeats
from tests.conftest import NOW, Database, Person, add_person


def run(database: Database, now: datetime = NOW, stop: bool = False) -> Run:
    return Run("nightly_refresh", now, database.settings, database.engine("sweep"), must_stop=lambda: stop)


def add_member(database: Database, person: Person, at: datetime, until: datetime | None = None) -> None:
    member = uuid.uuid4()
    database.run(
        "insert into members (id, user_id, site_id, external_id, registered_at) values (:id, :user, :site, :external, :at)",
        id=member,
        user=person.user_id,
        site=person.site_id,
        external=str(member),
        at=at,
    )
    database.run(
        "insert into subscriptions (user_id, site_id, member_id, external_id, status, price_minor, currency, period, started_at, ended_at)"
        " values (:user, :site, :member, :external, 'active', 2000, 'USD', 'month', :at, :until)",
        user=person.user_id,
        site=person.site_id,
        member=member,
        external=str(member),
        at=at,
        until=until,
    )


def documents(database: Database) -> list[Any]:
    return database.rows("select * from brain_documents order by updated_at")


def test_a_site_gets_its_document_with_the_day_of_its_data(database: Database) -> None:
    person = add_person(database, "a@x.example")
    add_member(database, person, datetime(2026, 3, 10, tzinfo=UTC))
    add_member(database, person, datetime(2026, 4, 10, tzinfo=UTC), datetime(2026, 5, 2, tzinfo=UTC))
    add_member(database, person, datetime(2026, 5, 3, tzinfo=UTC))
    add_member(database, person, datetime(2026, 5, 4, tzinfo=UTC))
    assert refresh_heartbeats(run(database))["refreshed"] == 1
    (document,) = documents(database)
    assert document.content.splitlines() == [
        "Club, data through 2026-05-12 12:00 (Europe/Berlin)",
        "- Active members: 3 now, 2 at the end of April 2026",
        "- New members: 2 so far in May 2026, 1 in April, 1 in March",
        "- Cancelled members: 1 so far in May 2026, 0 in April, 0 in March",
        "- Churn: 50.0% so far in May 2026, 0.0% in April, undefined in March",
        "- Monthly recurring revenue: USD 60.00 now, USD 40.00 at the end of April 2026",
        "- Revenue: USD 0.00 so far in May 2026, USD 0.00 in April, USD 0.00 in March",
        "- Refunds: USD 0.00 so far in May 2026, USD 0.00 in April, USD 0.00 in March",
    ]
    assert (document.user_id, document.site_id, document.author) == (
        person.user_id,
        person.site_id,
        "nightly",
    )


def test_nothing_is_written_where_nothing_changed_and_a_change_keeps_what_was(database: Database) -> None:
    person = add_person(database, "a@x.example")
    refresh_heartbeats(run(database))
    (first,) = documents(database)
    assert refresh_heartbeats(run(database, NOW + timedelta(days=1)))["unchanged"] == 1
    assert documents(database) == [first]
    add_member(database, person, NOW - timedelta(days=1))
    refresh_heartbeats(run(database, NOW + timedelta(days=2)))
    (second,) = documents(database)
    assert (second.version, second.id) == (2, first.id)
    assert "Active members: 1 now" in second.content
    (revision,) = database.rows("select * from brain_document_revisions")
    assert (revision.content, revision.version, revision.created_at) == (first.content, 1, first.updated_at)


def test_a_site_is_measured_again_only_after_an_import(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = add_person(database, "a@x.example")
    insert = (
        "insert into site_imports (user_id, site_id, source, file_name, file_hash, rows_read, rows_added, rows_updated,"
        " rows_unchanged, rows_rejected, created_at) values (:user, :site, 'x', 'x.csv', 'x', 0, 0, 0, 0, 0, :at)"
    )
    database.run(insert, user=person.user_id, site=person.site_id, at=NOW - timedelta(hours=1))
    assert refresh_heartbeats(run(database))["refreshed"] == 1

    measured: list[uuid.UUID] = []
    monkeypatch.setattr(heartbeat, "refresh", lambda _, site, **__: bool(measured.append(site.id)))
    assert refresh_heartbeats(run(database, NOW + timedelta(days=1)))["unchanged"] == 1
    assert measured == []
    database.run(insert, user=person.user_id, site=person.site_id, at=NOW + timedelta(days=1))
    assert refresh_heartbeats(run(database, NOW + timedelta(days=2)))["unchanged"] == 1
    assert measured == [person.site_id]


def test_a_site_without_data_has_none_and_each_site_its_own(database: Database) -> None:
    first, second = add_person(database, "a@x.example"), add_person(database, "b@x.example")
    third = add_person(database, "c@x.example")
    database.run("update sites set data_as_of = null where id = :id", id=third.site_id)
    add_member(database, second, NOW - timedelta(days=2))
    assert refresh_heartbeats(run(database)) == {
        "sites": 2,
        "old": 0,
        "refreshed": 2,
        "unchanged": 0,
        "failed": 0,
    }
    by_user = {d.user_id: d.content for d in documents(database)}
    assert "Active members: 0 now" in by_user[first.user_id]
    assert "Active members: 1 now" in by_user[second.user_id]


def test_the_oldest_data_is_measured_and_old_sites_are_counted(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    people = [add_person(database, f"{n}@x.example") for n in range(3)]
    for hours, person in zip((1, 50, 72), people, strict=True):
        database.run(
            "update sites set data_as_of = :at where id = :id",
            at=NOW - timedelta(hours=hours),
            id=person.site_id,
        )
    assert refresh_heartbeats(run(database))["old"] == 2
    printed = capsys.readouterr().out
    lines = [json.loads(line) for line in printed.splitlines()]
    assert [line["hours"] for line in lines if line.get("event") == "site_data_age_hours"] == [72.0]
    assert str(people[2].site_id) not in printed


def test_one_site_that_fails_leaves_the_others_done(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, whole = add_person(database, "a@x.example"), add_person(database, "b@x.example")
    refresh = heartbeat.refresh

    def failing(connection: Any, site: Any, *, now: datetime) -> bool:
        if site.id == broken.site_id:
            connection.execute(sa.text("select 1/0"))
        return refresh(connection, site, now=now)

    monkeypatch.setattr(heartbeat, "refresh", failing)
    with pytest.raises(AppError) as caught:
        refresh_heartbeats(run(database))
    assert caught.value.extra == {
        "sites": 2,
        "old": 0,
        "refreshed": 1,
        "unchanged": 0,
        "failed": 1,
    }
    assert [d.user_id for d in documents(database)] == [whole.user_id]


def test_a_site_that_is_deleted_meanwhile_gets_none(database: Database) -> None:
    person = add_person(database, "a@x.example")
    with database.engine("sweep").begin() as connection:
        (site,) = connection.execute(sa.text("select * from sites")).all()
        database.run("delete from users where id = :id", id=person.user_id)
        assert heartbeat.refresh(connection, site, now=NOW) is False


def test_it_stops_when_its_time_is_over(database: Database) -> None:
    add_person(database, "a@x.example")
    assert refresh_heartbeats(run(database, stop=True))["left"] == 1
    assert documents(database) == []

"""The demo data: what it promises, that it ends now, repeats and grows without changing its past."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from common.sites.imports.records import Member, Subscription, Transaction, moments
from local import demo
from tests.conftest import NOW, Database


def load(database: Database, now=NOW) -> None:
    demo.load(database.engine("owner"), database.engine("app"), now, issuer="local")


COUNTS = """
select u.email, t.tier, s.name, s.currency, s.data_as_of,
       (select count(*) from memberships x where x.site_id = s.id) as plans,
       (select count(*) from members x where x.site_id = s.id) as members,
       (select count(*) from transactions x where x.site_id = s.id and kind = 'refund') as refunds,
       (select count(*) from subscriptions x where x.site_id = s.id and ended_at is not null) as ended,
       (select count(*) from subscriptions x where x.site_id = s.id and ended_at is null) as running
from sites s join users u on u.id = s.user_id join tenants t on t.id = u.tenant_id order by u.email"""


@pytest.fixture(scope="module")
def loaded(module_database: Database) -> Database:
    load(module_database)
    return module_database


def test_two_tenants_with_a_site_each_that_ends_now(loaded: Database) -> None:
    club, studio = loaded.rows(COUNTS)
    assert tuple(club)[:6] == ("owner@demo.example", "pro", "Demo Club", "USD", NOW, 3)
    assert tuple(studio)[:6] == ("second@demo.example", "free", "Second Studio", "EUR", NOW, 2)
    assert 700 <= club.members <= 900
    assert 60 <= studio.members <= 140
    assert club.refunds > 20
    assert club.ended > 100
    assert club.running > 100
    latest = loaded.scalar("select max(occurred_at) from transactions")
    assert NOW - timedelta(days=2) < latest <= NOW


def test_loading_again_changes_nothing_and_a_later_day_only_adds(database: Database) -> None:
    tables = ("tenants", "users", "sites", "memberships", "members", "subscriptions", "transactions")
    load(database)
    before = {t: set(map(str, database.rows(f"select * from {t}"))) for t in tables}
    load(database)
    assert {t: set(map(str, database.rows(f"select * from {t}"))) for t in tables} == before
    load(database, NOW + timedelta(days=3))
    assert database.scalar("select min(data_as_of) from sites") == NOW + timedelta(days=3)
    after = {t: set(map(str, database.rows(f"select * from {t}"))) for t in tables}
    assert before["members"] < after["members"]
    assert before["transactions"] < after["transactions"]
    assert before["memberships"] == after["memberships"]


def test_the_history_is_the_same_each_time_and_its_past_does_not_move() -> None:
    site = demo.SITES[0]
    first, again = list(demo.history(site, NOW)), list(demo.history(site, NOW))
    assert first == again
    later = set(demo.history(site, NOW + timedelta(days=40)))
    recent = [r for r in first if isinstance(r, Transaction) and r.occurred_at > NOW - timedelta(days=300)]
    window = NOW - timedelta(days=685)
    joined = {
        r.external_id for r in first if isinstance(r, Member) and r.registered_at and r.registered_at > window
    }
    of_window = [r for r in recent if r.member and r.member.external_id in joined]
    assert of_window
    assert later.issuperset(of_window)


def test_nothing_lies_after_now() -> None:
    for site in demo.SITES:
        for record in demo.history(site, NOW):
            assert all(at <= NOW for at in moments(record)), record


def test_stories_hold_together() -> None:
    records = list(demo.history(demo.SITES[0], NOW))
    registered = {r.external_id: r.registered_at for r in records if isinstance(r, Member)}
    assert len(registered) == sum(isinstance(r, Member) for r in records)
    stays: dict[str, list[Subscription]] = {}
    for record in records:
        if isinstance(record, Subscription):
            stays.setdefault(record.member.external_id or "", []).append(record)
    assert stays.keys() == registered.keys()
    for member, own in stays.items():
        assert own[0].started_at == registered[member]
        assert all(a.ended_at and a.ended_at <= b.started_at for a, b in itertools.pairwise(own))
    assert any(len(own) > 1 for own in stays.values())
    assert any(r.status == "failed" for r in records if isinstance(r, Transaction))


def test_the_knowledge_base_has_about_thirty_articles_in_good_form() -> None:
    articles = sorted(demo.KNOWLEDGE.glob("*.md"))
    assert 28 <= len(articles) <= 35
    urls = set()
    for article in articles:
        text = article.read_text()
        _, front, body = text.split("---\n", 2)
        fields = dict(line.split(": ", 1) for line in front.strip().splitlines())
        assert fields.keys() == {"title", "url", "topics"}, article.name
        urls.add(fields["url"])
        assert 2 <= body.count("\n## ") + body.startswith("## ") <= 4, article.name
        assert 140 <= len(body.split()) <= 320, (article.name, len(body.split()))
    assert len(urls) == len(articles)

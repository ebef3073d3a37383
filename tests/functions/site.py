"""A small site's data, as rows that a test can reckon with."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from tests.conftest import NOW, Database, Person


def load_small_site(database: Database, person: Person, *, now: datetime = NOW) -> None:
    """Two plans; five members of whom four are active (three on Starter Pack, one on Inner Circle), all paid once."""
    plans = {"Starter Pack": 1900, "Inner Circle": 9900}
    ids = {}
    for number, (name, price) in enumerate(plans.items()):
        ids[name] = uuid.uuid4()
        database.run(
            "insert into memberships (id, user_id, site_id, external_id, name, price_minor, currency, period)"
            " values (:id, :user_id, :site_id, :external_id, :name, :price, 'USD', 'month')",
            id=ids[name],
            user_id=person.user_id,
            site_id=person.site_id,
            external_id=f"p{number}",
            name=name,
            price=price,
        )
    for number, plan in enumerate(["Starter Pack"] * 4 + ["Inner Circle"]):
        member, joined = uuid.uuid4(), now - timedelta(days=60 - number)
        database.run(
            "insert into members (id, user_id, site_id, external_id, email, name, registered_at)"
            " values (:id, :user_id, :site_id, :external_id, :email, :name, :joined)",
            id=member,
            user_id=person.user_id,
            site_id=person.site_id,
            external_id=f"m{number}",
            email=f"member{number}@club.example",
            name=f"Member {number}",
            joined=joined,
        )
        database.run(
            "insert into subscriptions (user_id, site_id, member_id, membership_id, external_id, status, price_minor, currency,"
            " period, started_at, ended_at) values (:user_id, :site_id, :member, :plan, :external_id, :status, :price, 'USD',"
            " 'month', :started, :ended)",
            user_id=person.user_id,
            site_id=person.site_id,
            member=member,
            plan=ids[plan],
            external_id=f"s{number}",
            status="cancelled" if number == 0 else "active",
            price=plans[plan],
            started=joined,
            ended=now - timedelta(days=5) if number == 0 else None,
        )
        database.run(
            "insert into transactions (user_id, site_id, member_id, membership_id, external_id, kind, amount_minor, currency,"
            " status, occurred_at) values (:user_id, :site_id, :member, :plan, :external_id, 'payment', :amount, 'USD',"
            " 'complete', :at)",
            user_id=person.user_id,
            site_id=person.site_id,
            member=member,
            plan=ids[plan],
            external_id=f"t{number}",
            amount=plans[plan],
            at=joined,
        )

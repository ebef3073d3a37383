"""Tenants and users: finding the user behind an identity, and scoping the transaction to them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import sqlalchemy as sa
from sqlalchemy import Connection

from common.auth import Identity
from common.config import Settings
from common.errors import Forbidden

Tier = Literal["free", "pro"]


@dataclass(frozen=True)
class Account:
    """A user and what their tenant pays for."""

    user_id: uuid.UUID
    tenant_id: uuid.UUID
    email: str
    tier: Tier


# The policy shows a user to whoever proves this identity; setting app.user_id in the same statement saves a round trip.
_ENTER = sa.text("""
    select u.id, u.tenant_id, u.email, t.tier, set_config('app.user_id', cast(u.id as text), true)
    from users u join tenants t on t.id = u.tenant_id
    where u.issuer = :issuer and u.subject = :subject
""")


def enter(connection: Connection, identity: Identity, config: Settings, now: datetime) -> Account:
    """The account of `identity`; the rest of the transaction sees that user's rows. An identity never seen before is refused
    (Forbidden) or gets a Free tenant of its own, as the setting `first_login` says."""
    connection.execute(
        sa.text("select set_config('app.issuer', :issuer, true), set_config('app.subject', :subject, true)"),
        {"issuer": identity.issuer, "subject": identity.subject},
    )
    found = connection.execute(_ENTER, {"issuer": identity.issuer, "subject": identity.subject}).first()
    if found is None and config.first_login == "create_free":
        _create_free(connection, identity, now)
        found = connection.execute(_ENTER, {"issuer": identity.issuer, "subject": identity.subject}).first()
    if found is None:
        raise Forbidden("This account is not known here. Ask the operator to add it.")
    return Account(found.id, found.tenant_id, found.email, found.tier)


def _create_free(connection: Connection, identity: Identity, now: datetime) -> None:
    add_user(
        connection, identity, tenant_id=uuid.uuid4(), tenant_name=identity.email or identity.subject, now=now
    )


def add_user(
    connection: Connection, identity: Identity, *, tenant_id: uuid.UUID, tenant_name: str, now: datetime
) -> None:
    """A new user in a new Free tenant. A user who exists already is left as is, and so is no tenant made for them."""
    connection.execute(
        sa.text("""
            with fresh as (
                insert into tenants (id, name, tier, created_at) values (:tenant_id, :tenant_name, 'free', :now)
            )
            insert into users (tenant_id, email, issuer, subject, created_at)
            values (:tenant_id, :email, :issuer, :subject, :now)
        """),
        {
            "tenant_id": tenant_id,
            "tenant_name": tenant_name,
            "email": identity.email,
            "issuer": identity.issuer,
            "subject": identity.subject,
            "now": now,
        },
    )

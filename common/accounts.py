"""Tenants and users: finding the user behind an identity, and scoping the transaction to them."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Row
from sqlalchemy.exc import DBAPIError

from common import rate_limit
from common.auth import Identity
from common.config import Settings
from common.db import error_name, set_local, statement, transaction
from common.erasure_ledger import ledger
from common.errors import Forbidden, Unauthenticated

FOREIGN_KEY = "23503"

Tier = Literal["free", "pro"]


class Account(NamedTuple):
    """A user and what their tenant pays for."""

    user_id: uuid.UUID
    tenant_id: uuid.UUID
    email: str
    tier: Tier


# The policy shows a user to whoever proves this identity; setting app.user_id and counting the request in the same statement saves
# two round trips.
_ENTER = statement(
    "id tenant_id email tier requests",
    f"""
    with found as materialized (
        select u.id, u.tenant_id, u.email, t.tier, set_config('app.user_id', cast(u.id as text), true)
        from users u join tenants t on t.id = u.tenant_id
        where u.issuer = :issuer and u.subject = :subject),
    counted as ({rate_limit.COUNT})
    select id, tenant_id, email, tier, requests from found, counted
""",
)


def enter(
    connection: Connection, identity: Identity, config: Settings, now: datetime, *, requests: int = 1
) -> Account:
    """The account of `identity`, with this request counted (0 where it was before); the rest of the transaction sees that user's rows. An
    identity never seen before is refused (Forbidden) or gets a Free tenant of its own, as the setting `first_login` says. Raises
    Unauthenticated for a token from before its user's erasure, TooManyRequests."""
    _refuse_erased(identity, config)
    found = _find(connection, identity, now, requests)
    if found is None:
        # Who is not there may have been erased a moment ago, by another instance.
        _refuse_erased(identity, config, fresh=True)
        if config.first_login == "create_free":
            _create_free(connection, identity, now)
            found = _find(connection, identity, now, requests)
    if found is None:
        raise Forbidden("This account is not known here. Ask the operator to add it.")
    rate_limit.check(found.requests, config.requests_per_minute, now)
    return Account(found.id, found.tenant_id, found.email, found.tier)


def count_refused(identity: Identity, config: Settings, now: datetime) -> None:
    """Count a request that was refused, and whose own count was rolled back with it. Raises TooManyRequests."""
    with transaction("app") as connection:
        if found := _find(connection, identity, now):
            rate_limit.check(found.requests, config.requests_per_minute, now)


def _find(connection: Connection, identity: Identity, now: datetime, requests: int = 1) -> Row[Any] | None:
    who = {"issuer": identity.issuer, "subject": identity.subject}
    set_local(connection, {f"app.{claim}": value for claim, value in who.items()})
    try:
        return connection.execute(
            _ENTER, {**who, "minute": rate_limit.minute_of(now), "more": requests}
        ).first()
    except DBAPIError as exc:
        if error_name(exc) == FOREIGN_KEY:  # erased while we waited to count
            raise Unauthenticated() from None
        raise


def _refuse_erased(identity: Identity, config: Settings, *, fresh: bool = False) -> None:
    if kept := ledger(config):
        erased_at = kept.erased_at(identity.issuer, identity.subject, fresh=fresh)
        if erased_at is not None and identity.issued_at <= erased_at:
            raise Unauthenticated("This sign-in is from before everything was erased. Sign in again.")


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

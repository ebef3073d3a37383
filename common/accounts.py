"""Tenants and users: finding the user behind an identity, and scoping the transaction to them."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection, Row
from sqlalchemy.exc import DBAPIError

from common import rate_limit
from common.auth import Identity
from common.config import Settings
from common.db import FOREIGN_KEY, ask_with_next, error_name, set_local, statement, transaction
from common.erasure_ledger import ledger
from common.errors import Forbidden, Unauthenticated

Tier = Literal["free", "pro"]
T = TypeVar("T")


class Account(NamedTuple):
    """A user and what their tenant pays for."""

    user_id: uuid.UUID
    tenant_id: uuid.UUID
    email: str
    tier: Tier


# The policy shows a user to whoever proves this identity; setting app.user_id and counting the request in the same statement saves
# two round trips.
_FIND_AND_COUNT = f"""
    with found as materialized (
        select u.id, u.tenant_id, u.email, t.tier, set_config('app.user_id', cast(u.id as text), true)
        from users u join tenants t on t.id = u.tenant_id
        where u.issuer = :issuer and u.subject = :subject),
    counted as ({rate_limit.COUNT})
"""
_ENTER = statement(
    "id tenant_id email tier requests",
    f"{_FIND_AND_COUNT} select id, tenant_id, email, tier, requests from found, counted",
)
_ENTER_AS = statement(
    "admitted",
    f"""{_FIND_AND_COUNT}
    select case when (id, tenant_id, email, tier) = (cast(:user_id as uuid), cast(:tenant_id as uuid), :email, :tier) and requests <= :most
                then true else not_as_expected() end as admitted
    from found, counted
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
    return _admitted(found, config, now)


# The account of an identity when this process last met it. A guess, and never more: see `enter_asking` and `enter_as`.
_met: dict[tuple[str, str], Account] = {}
_MOST_MET = 10_000


def enter_asking(
    connection: Connection,
    identity: Identity,
    config: Settings,
    now: datetime,
    ask: Callable[[uuid.UUID], T],
    *,
    local: Mapping[str, str],
    requests: int = 1,
) -> tuple[Account, T]:
    """The account of `identity`, as by `enter`, and what `ask` reads of that user, by one statement that changes nothing. `local` are
    settings of the server's for the rest of the transaction.

    Where this process has met the identity, both go in one round trip, and `ask` is told the user of then. The server looks the user up all
    the same, and shows rows of nobody else; where it is another, or none, `ask` is asked again. Raises the errors of both.
    """
    set_local(connection, {**_claims(identity), **local})
    met = last_met(identity)
    if met is None:
        account = enter(connection, identity, config, now, requests=requests)
        _meet(identity, account)
        return account, ask(account.user_id)
    _refuse_erased(identity, config)
    found = ask_with_next(connection, _ENTER, _asked(identity, now, requests))
    with _erased_meanwhile():
        asked = ask(met.user_id)
    row = found()
    if row is None:
        _met.pop(_key(identity), None)
        account = enter(connection, identity, config, now, requests=requests)
        return account, ask(account.user_id)
    account = _admitted(row, config, now)
    _meet(identity, account)
    return account, (asked if account.user_id == met.user_id else ask(account.user_id))


def last_met(identity: Identity) -> Account | None:
    """The account that `identity` was when this process last met it: what `enter_as` may be tried with."""
    return _met.get(_key(identity))


def enter_as(
    connection: Connection,
    account: Account,
    identity: Identity,
    config: Settings,
    now: datetime,
    *,
    local: Mapping[str, str],
) -> None:
    """As `enter`, in the round trip of the next statement. That fails by NOT_AS_EXPECTED where the identity's account is not exactly
    `account` or has no request left in this minute, and by FOREIGN_KEY where its user is erased meanwhile; where the identity is nobody's
    it sees no rows. Raises Unauthenticated."""
    _refuse_erased(identity, config)
    set_local(connection, {**_claims(identity), **local})
    expected = {**account._asdict(), "most": config.requests_per_minute}
    ask_with_next(connection, _ENTER_AS, {**_asked(identity, now, 1), **expected})


def _meet(identity: Identity, account: Account) -> None:
    if len(_met) >= _MOST_MET:
        _met.clear()
    _met[_key(identity)] = account


def _key(identity: Identity) -> tuple[str, str]:
    return identity.issuer, identity.subject


def count_refused(identity: Identity, config: Settings, now: datetime) -> None:
    """Count a request that was refused, and whose own count was rolled back with it. Raises TooManyRequests."""
    with transaction("app") as connection:
        if found := _find(connection, identity, now):
            rate_limit.check(found.requests, config.requests_per_minute, now)


def _find(connection: Connection, identity: Identity, now: datetime, requests: int = 1) -> Row[Any] | None:
    set_local(connection, _claims(identity))
    with _erased_meanwhile():
        return connection.execute(_ENTER, _asked(identity, now, requests)).first()


def _claims(identity: Identity) -> dict[str, str]:
    """What the policy knows a user by who is not found yet."""
    return {"app.issuer": identity.issuer, "app.subject": identity.subject}


def _asked(identity: Identity, now: datetime, requests: int) -> dict[str, Any]:
    return {
        "issuer": identity.issuer,
        "subject": identity.subject,
        "minute": rate_limit.minute_of(now),
        "more": requests,
    }


@contextlib.contextmanager
def _erased_meanwhile() -> Iterator[None]:
    """Raises Unauthenticated where the user was erased while the request waited to be counted."""
    try:
        yield
    except DBAPIError as exc:
        if error_name(exc) == FOREIGN_KEY:
            raise Unauthenticated() from None
        raise


def _admitted(found: Any, config: Settings, now: datetime) -> Account:
    """The account in a row of `_ENTER`."""
    rate_limit.check(found.requests, config.requests_per_minute, now)
    return Account(found.id, found.tenant_id, found.email, found.tier)


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

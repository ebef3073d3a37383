"""`tenant`, `user`, `set-tier`, `erase`, `dead-letters`: what an operator does to accounts and events."""

from __future__ import annotations

import argparse
import uuid

import sqlalchemy as sa

from common import db, erasure, events
from common.config import settings
from common.errors import AppError, NotFound
from common.text import to_json
from local.issuer import ISSUER
from local.stack import now, opened


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The subcommands of this group."""
    tenant = subparsers.add_parser("tenant", help="add a tenant").add_subparsers(required=True, metavar="add")
    add = tenant.add_parser("add", help="a new tenant; prints its id")
    add.add_argument("name")
    add.add_argument("--tier", choices=("free", "pro"), default="free")
    add.set_defaults(run=add_tenant)

    user = subparsers.add_parser("user", help="add a user").add_subparsers(required=True, metavar="add")
    add = user.add_parser("add", help="a new user in a tenant; prints their id")
    add.add_argument("email")
    add.add_argument("--tenant", required=True, type=uuid.UUID, metavar="ID")
    add.add_argument("--issuer", default=ISSUER, help="issuer of their tokens (default: the local one)")
    add.add_argument("--subject", help="their subject at that issuer (default: the e-mail address)")
    add.set_defaults(run=add_user)

    tier = subparsers.add_parser("set-tier", help="change what a tenant pays for")
    tier.add_argument("tenant", type=uuid.UUID, metavar="TENANT_ID")
    tier.add_argument("tier", choices=("free", "pro"))
    tier.set_defaults(run=set_tier)

    erase = subparsers.add_parser("erase", help="erase a user for good; prints the receipt")
    whom = erase.add_mutually_exclusive_group(required=True)
    whom.add_argument("--user", metavar="EMAIL", help="their e-mail address, or their id")
    whom.add_argument(
        "--reapply", action="store_true", help="after a restore: everyone whom the ledger names, again"
    )
    erase.set_defaults(run=erase_users)

    dead = subparsers.add_parser("dead-letters", help="events that failed five times")
    dead.add_argument("action", choices=("list", "replay"))
    dead.add_argument("--id", type=uuid.UUID, help="only this event")
    dead.set_defaults(run=dead_letters)


def add_tenant(arguments: argparse.Namespace) -> int:
    """Insert a tenant."""
    with opened(arguments.data), db.transaction("owner") as connection:
        found = connection.scalar(
            sa.text("insert into tenants (name, tier) values (:name, :tier) returning id"),
            {"name": arguments.name, "tier": arguments.tier},
        )
        print(found)
    return 0


def add_user(arguments: argparse.Namespace) -> int:
    """Insert a user."""
    with opened(arguments.data), db.transaction("owner") as connection:
        known = connection.scalar(sa.text("select 1 from tenants where id = :id"), {"id": arguments.tenant})
        if known is None:
            raise NotFound(f"There is no tenant {arguments.tenant}. Add one with `memberintel tenant add`.")
        added = connection.scalar(
            sa.text("""
                insert into users (tenant_id, email, issuer, subject) values (:tenant_id, :email, :issuer, :subject)
                on conflict (issuer, subject) do nothing returning id
            """),
            {
                "tenant_id": arguments.tenant,
                "email": arguments.email,
                "issuer": arguments.issuer,
                "subject": arguments.subject or arguments.email,
            },
        )
        if added is None:
            raise AppError("There is a user with this issuer and subject already.")
        print(added)
    return 0


def set_tier(arguments: argparse.Namespace) -> int:
    """Change a tenant's tier; it holds from the next turn."""
    with opened(arguments.data), db.transaction("owner") as connection:
        changed = connection.execute(
            sa.text("update tenants set tier = :tier where id = :id"),
            {"tier": arguments.tier, "id": arguments.tenant},
        )
        if changed.rowcount != 1:
            raise NotFound(f"There is no tenant {arguments.tenant}.")
    print(f"Tenant {arguments.tenant} is {arguments.tier} now.")
    return 0


def erase_users(arguments: argparse.Namespace) -> int:
    """Erase one user, or again everyone whom the ledger names. Fails when a receipt shows something left."""
    with opened(arguments.data):
        if arguments.reapply:
            receipts = list(erasure.reapply(settings(), now()))
            print(f"{len(receipts)} users were erased again.")
        else:
            with db.transaction("owner") as connection:
                user_id = erasure.find_user(connection, arguments.user)
            receipts = [erasure.erase_as_operator(user_id, settings(), now())]
            print(receipts[0].model_dump_json(indent=2))
    if not all(receipt.complete for receipt in receipts):
        raise AppError("Something is left of an erased user: see the receipt, and treat it as an incident.")
    return 0


def dead_letters(arguments: argparse.Namespace) -> int:
    """List the dead events, a JSON line each without their payload, or make them due again."""
    chosen = "dead_at is not null and (cast(:id as uuid) is null or id = :id)"
    with opened(arguments.data), db.transaction("jobs") as connection:
        if arguments.action == "list":
            rows = connection.execute(
                sa.text(f"""
                    select id, type, attempts, last_error, created_at, dead_at from outbox_events where {chosen}
                    order by created_at
                """),
                {"id": arguments.id},
            )
            for row in rows:
                print(to_json(dict(row._mapping)))
            return 0
        replayed = connection.execute(
            sa.text(f"""
                update outbox_events set dead_at = null, attempts = 0, published_at = null, deliver_after = :now
                where {chosen} returning id, type, version
            """),
            {"id": arguments.id, "now": now()},
        ).all()
    with opened(arguments.data):
        if settings().pubsub_project:
            publisher = events.publisher(settings())
            events.publish_now([events.Event(r.id, r.type, r.version) for r in replayed], publisher)
    print(f"{len(replayed)} events are due again; the relay publishes them.")
    return 0

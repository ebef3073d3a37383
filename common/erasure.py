"""Erasing a user: everything of theirs in the database and in BigQuery, a receipt of it, and an entry in the ledger."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta

import sqlalchemy as sa
from pydantic import Field
from sqlalchemy import Connection, Engine

from common.config import Settings
from common.db import retried, transaction, user_transaction
from common.erasure_ledger import Ledger, ledger
from common.errors import ConfigError, NotFound, Unavailable
from common.shapes import Shape
from common.warehouse.bigquery import warehouse

# Cascades over years of a large site's data take longer than a turn's statement may.
SECONDS = 110


class Erased(Shape):
    """What became of a table: the rows that were deleted, those that stay and no longer name the user, and those found afterwards that
    still hold something of them."""

    deleted: int
    anonymised: int = 0
    left: int


class Receipt(Shape):
    """The receipt of an erasure. A table of BigQuery is named `bigquery.<table>`."""

    erased_at: datetime
    complete: bool = Field(description="Whether the scan found nothing left in any table")
    tables: dict[str, Erased]
    backups_expire_at: datetime = Field(
        description="When the last backup from before is gone; until then the ledger erases again after a restore"
    )


def erase(connection: Connection, user_id: uuid.UUID, config: Settings, now: datetime) -> Receipt:
    """Delete the user of this transaction, with the tenant if it was theirs alone, and look into every table for what is left. The caller
    commits; what cannot be completed everywhere is not done at all, but for rows that BigQuery has deleted by then.

    Raises ConfigError without a ledger, NotFound for nobody, Unavailable while the export runs or where BigQuery or the ledger cannot be
    reached.
    """
    kept = required_ledger(config)
    messages = _hold_off_the_export(connection, user_id) if config.bigquery_dataset else []
    connection.execute(
        sa.text("select set_config('statement_timeout', :ms, true)"), {"ms": str(SECONDS * 1000)}
    )
    done = connection.scalar(sa.text("select erase_user(:user_id)"), {"user_id": user_id})
    if done is None:
        raise NotFound("There is no such user.")
    tables = {name: Erased(**counts) for name, counts in done["tables"].items()}
    if config.bigquery_dataset:
        for name, (deleted, left) in warehouse(config).delete_user(user_id, messages).items():
            tables[f"bigquery.{name}"] = Erased(deleted=deleted, left=left)
    kept.add(done["issuer"], done["subject"], now)
    return Receipt(
        erased_at=now,
        complete=not any(table.left for table in tables.values()),
        tables=tables,
        backups_expire_at=now + timedelta(days=config.backup_days),
    )


def required_ledger(config: Settings) -> Ledger:
    """The ledger. Raises ConfigError: an erasure that a restore would undo is none."""
    if (kept := ledger(config)) is None:
        raise ConfigError("MEMBERINTEL_ERASURE_LEDGER is not set; without the ledger nobody can be erased.")
    return kept


def _hold_off_the_export(connection: Connection, user_id: uuid.UUID) -> list[uuid.UUID]:
    """Keep the export from running until this transaction ends, or it could load what it read before. Returns the ids of the user's logged
    messages, by which the streamed copy knows them."""
    if not connection.scalar(
        sa.text("select pg_try_advisory_xact_lock(hashtext('job:export_bigquery'))"),
    ):
        raise Unavailable("The nightly export is running. Try again in a few minutes.")
    return list(
        connection.execute(
            sa.text("select distinct message_id from retrieval_events where user_id = :user_id"),
            {"user_id": user_id},
        ).scalars()
    )


def erase_as_operator(
    user_id: uuid.UUID, config: Settings, now: datetime, *, source: Engine | None = None
) -> Receipt:
    """`erase`, committed, for somebody who asked an operator."""

    def work() -> Receipt:
        with user_transaction(user_id, role="owner", source=source) as connection:
            return erase(connection, user_id, config, now)

    return retried(work)


def reapply(config: Settings, now: datetime, *, source: Engine | None = None) -> Iterator[Receipt]:
    """Erase again whom a restored backup brought back: everyone in the ledger whose row is older than their erasure. Yields a receipt for
    each; safe to repeat."""
    kept = required_ledger(config)
    with transaction("owner", source=source) as connection:
        everyone = connection.execute(sa.text("select id, issuer, subject, created_at from users")).all()
    for person in everyone:
        erased_at = kept.erased_at(person.issuer, person.subject)
        if erased_at is not None and person.created_at <= erased_at:
            yield erase_as_operator(person.id, config, now, source=source)


def find_user(connection: Connection, named: str) -> uuid.UUID:
    """The user with this e-mail address or id, for the owner's role. Raises NotFound, also when the address is several users'."""
    found = (
        connection.execute(
            sa.text("select id from users where email = :named or cast(id as text) = :named order by id"),
            {"named": named},
        )
        .scalars()
        .all()
    )
    if len(found) > 1:
        raise NotFound(f"Several users have this address. Name one by id: {', '.join(map(str, found))}.")
    if not found:
        raise NotFound(f"There is no user {named}.")
    return uuid.UUID(str(found[0]))

"""SOUL, BIBLE and HEARTBEAT: one text of each kind, of a user or of one of their sites, with every earlier text kept as a revision."""

from __future__ import annotations

import sys
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import Connection

from common.errors import InvalidFields, NotFound, StaleVersion
from common.text import sanitise

MAX_CHARACTERS = 8_000
UNCUT = sys.maxsize  # what is too long is refused, not cut

Kind = Literal["soul", "bible", "heartbeat"]
Author = Literal["customer", "advisor", "system"]


@dataclass(frozen=True)
class Document:
    """A document, or an earlier text of it. `version` counts from 1 and is what an edit is checked against; `written_at` is when this
    text was written. `site_id` is None but for a HEARTBEAT."""

    kind: str
    site_id: uuid.UUID | None
    content: str
    version: int
    author: str
    written_at: datetime


def lock_brain(connection: Connection, user_id: uuid.UUID) -> None:
    """Let one transaction at a time change what is remembered of this user. Held until the transaction ends; the app may not lock the
    user's row, which it has no right to change."""
    connection.execute(
        sa.text("select pg_advisory_xact_lock(hashtextextended('brain:' || cast(:user_id as text), 0))"),
        {"user_id": str(user_id)},
    )


_DOCUMENTS = """
    select id, kind, site_id, content, version, author, updated_at as written_at from brain_documents
    where user_id = :user_id
"""
_DOCUMENT = f"{_DOCUMENTS} and kind = :kind and site_id is not distinct from cast(:site_id as uuid)"


def list_documents(connection: Connection, user_id: uuid.UUID) -> list[Document]:
    """All documents of the user, SOUL and BIBLE first, then a HEARTBEAT for each site."""
    rows = connection.execute(
        sa.text(f"{_DOCUMENTS} order by site_id nulls first, kind desc"), {"user_id": user_id}
    )
    return [_document(row) for row in rows]


def read_document(
    connection: Connection, user_id: uuid.UUID, kind: Kind, site_id: uuid.UUID | None = None
) -> Document | None:
    """The document, or None before anything was written."""
    row = connection.execute(
        sa.text(_DOCUMENT), {"user_id": user_id, "kind": kind, "site_id": site_id}
    ).first()
    return _document(row) if row else None


def write_document(
    connection: Connection,
    user_id: uuid.UUID,
    kind: Kind,
    content: str,
    author: Author,
    now: datetime,
    expected_version: int | None = None,
    *,
    site_id: uuid.UUID | None = None,
) -> Document:
    """Make `content`, sanitised, the document's text and keep the text it replaces as a revision. The same text again changes nothing.

    `expected_version` is the version that the writer read, 0 for none. Raises StaleVersion when it is no longer that, InvalidFields for a
    text of more than 8,000 characters. One writer at a time: the user's lock is held until the transaction ends.
    """
    text = _checked(content)
    lock_brain(connection, user_id)
    before = read_document(connection, user_id, kind, site_id)
    if expected_version is not None and expected_version != (before.version if before else 0):
        raise StaleVersion()
    if before is not None and before.content == text:
        return before
    return _document(
        connection.execute(
            _WRITE,
            {
                "user_id": user_id,
                "kind": kind,
                "site_id": site_id,
                "content": text,
                "author": author,
                "now": now,
            },
        ).one()
    )


# Both parts see the table as it was before the statement: what is kept is the text that goes.
_WRITE = sa.text(f"""
    with kept as (
        insert into brain_document_revisions (user_id, document_id, version, content, author, created_at)
        select :user_id, d.id, d.version, d.content, d.author, d.written_at from ({_DOCUMENT}) d)
    insert into brain_documents (user_id, kind, site_id, content, author, updated_at)
    values (:user_id, :kind, cast(:site_id as uuid), :content, :author, :now)
    on conflict (user_id, kind, site_id) do update set
        content = excluded.content, author = excluded.author, updated_at = excluded.updated_at,
        version = brain_documents.version + 1
    returning kind, site_id, content, version, author, updated_at as written_at
""")


def revisions(
    connection: Connection,
    user_id: uuid.UUID,
    kind: Kind,
    site_id: uuid.UUID | None = None,
    *,
    before: int | None = None,
    limit: int = 50,
) -> list[Document]:
    """The earlier texts of a document, newest first; `before` a version, to page on."""
    rows = connection.execute(
        sa.text(f"""
            select d.kind, d.site_id, r.content, r.version, r.author, r.created_at as written_at
            from ({_DOCUMENT}) d join brain_document_revisions r on r.document_id = d.id and r.user_id = :user_id
            where cast(:before as bigint) is null or r.version < :before
            order by r.version desc limit :limit
        """),
        {"user_id": user_id, "kind": kind, "site_id": site_id, "before": before, "limit": limit},
    )
    return [_document(row) for row in rows]


def restore(
    connection: Connection,
    user_id: uuid.UUID,
    kind: Kind,
    version: int,
    author: Author,
    now: datetime,
    expected_version: int | None = None,
) -> Document:
    """Write the text of an earlier version again, as a new version. Raises NotFound for a version that is not kept, StaleVersion."""
    lock_brain(connection, user_id)
    found = revisions(connection, user_id, kind, before=version + 1, limit=1)
    if not found or found[0].version != version:
        raise NotFound("There is no such revision.")
    return write_document(connection, user_id, kind, found[0].content, author, now, expected_version)


def _checked(content: str) -> str:
    text = sanitise(content, limit=UNCUT).strip()
    if len(text) > MAX_CHARACTERS:
        raise InvalidFields(f"A document holds at most {MAX_CHARACTERS} characters.")
    return text


def _document(row: Any) -> Document:
    return Document(row.kind, row.site_id, row.content, row.version, row.author, row.written_at)

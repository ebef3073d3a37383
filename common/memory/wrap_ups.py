"""Wrap-ups as their owner sees them: listed, read, corrected and deleted. Nothing here is called for a model.

`common.memory.wrap_up_writing` writes them, once each.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import ConfigDict, Field, ValidationError
from sqlalchemy import Connection, Row

from common.errors import InvalidFields, NotFound, StaleVersion
from common.memory.wrap_up_draft import ITEM_CHARACTERS, LISTS, SUMMARY_CHARACTERS
from common.memory.wrap_up_prompts import MAX_WORDS
from common.shapes import Shape
from common.text import one_line, sanitise, to_json
from common.words import count_words


@dataclass(frozen=True)
class WrapUp:
    """A stored wrap-up. An entry of the lists is `{"text", "message_ids"}`; the ids are of messages of `conversation_id`. `created_at` is
    the session's last activity."""

    id: uuid.UUID
    session_id: uuid.UUID
    conversation_id: uuid.UUID
    summary: str
    decisions: list[dict[str, Any]]
    open_items: list[dict[str, Any]]
    new_context: list[dict[str, Any]]
    next_session_note: str
    trigger: str
    model: str
    version: int
    created_at: datetime
    edited_at: datetime | None


_OF_USER = """
    l.id, l.session_id, s.conversation_id, l.summary, l.decisions, l.open_items, l.new_context, l.next_session_note, l.trigger,
    l.model, l.version, l.created_at, l.edited_at
    from session_logs l join sessions s on s.id = l.session_id and s.user_id = :user_id
    where l.user_id = :user_id
"""


def list_wrap_ups(
    connection: Connection,
    user_id: uuid.UUID,
    before: tuple[datetime, uuid.UUID] | None,
    limit: int,
) -> list[WrapUp]:
    """The user's wrap-ups, newest first, at most `limit`; with `before` (time and id of the last one seen) those that follow it."""
    at, id = before or (None, None)
    rows = connection.execute(
        sa.text(f"""
            select {_OF_USER}
              and (cast(:at as timestamptz) is null
                   or (l.created_at, l.id) < (cast(:at as timestamptz), cast(:id as uuid)))
            order by l.created_at desc, l.id desc
            limit :limit
        """),
        {"user_id": user_id, "at": at, "id": id, "limit": limit},
    )
    return [WrapUp(**row._mapping) for row in rows]


def get_wrap_up(connection: Connection, user_id: uuid.UUID, id: uuid.UUID) -> WrapUp:
    """One wrap-up of the user. Raises NotFound."""
    row = connection.execute(
        sa.text(f"select {_OF_USER} and l.id = :id"),
        {"user_id": user_id, "id": id},
    ).first()
    if row is None:
        raise NotFound()
    return WrapUp(**row._mapping)


class _EditedItem(Shape):
    model_config = ConfigDict(extra="forbid")
    text: str = Field(min_length=1, max_length=ITEM_CHARACTERS)
    message_ids: list[str] = Field(default_factory=list)


class _Changes(Shape):
    """What a customer may change: any of the five fields. An entry may be given as its text alone."""

    model_config = ConfigDict(extra="forbid")
    summary: str | None = Field(None, min_length=1, max_length=SUMMARY_CHARACTERS)
    decisions: list[_EditedItem | str] | None = None
    open_items: list[_EditedItem | str] | None = None
    new_context: list[_EditedItem | str] | None = None
    next_session_note: str | None = Field(None, max_length=ITEM_CHARACTERS)


def edit_wrap_up(
    connection: Connection,
    user_id: uuid.UUID,
    id: uuid.UUID,
    changes: dict[str, Any],
    expected_version: int | None,
    now: datetime,
) -> WrapUp:
    """The wrap-up with its owner's changes: `changes` holds the fields to replace. A message id stays only where the wrap-up had it.

    Raises NotFound, StaleVersion when it is no longer at `expected_version`, and InvalidFields.
    """
    wanted = _read_changes(changes)
    # The policy lets a row change only while this is set.
    connection.execute(sa.text("select set_config('app.actor', 'customer', true)"))
    row = connection.execute(
        sa.text("select * from session_logs where user_id = :user_id and id = :id for update"),
        {"user_id": user_id, "id": id},
    ).first()
    if row is None:
        raise NotFound()
    if expected_version is not None and row.version != expected_version:
        raise StaleVersion()
    connection.execute(
        sa.text("""
            update session_logs set summary = :summary, decisions = cast(:decisions as jsonb), open_items = cast(:open_items as jsonb),
                new_context = cast(:new_context as jsonb), next_session_note = :next_session_note, version = version + 1,
                edited_at = :now
            where user_id = :user_id and id = :id
        """),
        {"user_id": user_id, "id": id, "now": now, **_edited(row, wanted)},
    )
    connection.execute(sa.text("select set_config('app.actor', '', true)"))
    return get_wrap_up(connection, user_id, id)


def _read_changes(changes: dict[str, Any]) -> _Changes:
    try:
        return _Changes.model_validate(changes)
    except ValidationError as exc:
        first = exc.errors(include_input=False)[0]
        raise InvalidFields(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _edited(row: Row[Any], wanted: _Changes) -> dict[str, str]:
    """The columns after the edit. Raises InvalidFields beyond the words that a wrap-up may have."""
    known = {id for name in LISTS for item in getattr(row, name) for id in item["message_ids"]}
    texts = {
        "summary": _text(wanted.summary, row.summary, SUMMARY_CHARACTERS),
        "next_session_note": _text(wanted.next_session_note, row.next_session_note, ITEM_CHARACTERS),
    }
    if not texts["summary"]:
        raise InvalidFields("summary: there is no visible text in it.")
    lists = {
        name: getattr(row, name) if (items := getattr(wanted, name)) is None else _items(items, known)
        for name in LISTS
    }
    words = sum(map(count_words, [*texts.values(), *(i["text"] for items in lists.values() for i in items)]))
    if words > MAX_WORDS:
        raise InvalidFields(f"A wrap-up may have {MAX_WORDS} words in all; this has {words}.")
    return texts | {name: to_json(items) for name, items in lists.items()}


def _text(wanted: str | None, present: str, limit: int) -> str:
    return present if wanted is None else sanitise(wanted.strip(), limit)


def _items(items: list[_EditedItem | str], known: set[str]) -> list[dict[str, Any]]:
    given = [
        item if isinstance(item, _EditedItem) else _EditedItem(text=item[:ITEM_CHARACTERS] or " ")
        for item in items
    ]
    edited = [
        {
            "text": one_line(sanitise(item.text), ITEM_CHARACTERS),
            "message_ids": [id for id in item.message_ids if id in known],
        }
        for item in given
    ]
    return [item for item in edited if item["text"]]


def delete_wrap_up(connection: Connection, user_id: uuid.UUID, id: uuid.UUID) -> None:
    """Delete a wrap-up for good: its session is marked, so that none is made again, by a job already running either. `id` may also be
    the session's, which forestalls a wrap-up not made yet. Raises NotFound."""
    session = connection.execute(
        sa.text("""
            select s.id, s.ended_at from sessions s
            where s.user_id = :user_id
              and (s.id = :id or s.id = (select session_id from session_logs where user_id = :user_id and id = :id))
            for no key update of s
        """),
        {"user_id": user_id, "id": id},
    ).first()
    if session is None:
        raise NotFound()
    connection.execute(
        sa.text("""
            with tombstone as (
                update sessions set wrap_up = 'deleted', wrap_up_reason = null, wrap_up_lease = null,
                                    wrap_up_lease_until = null
                where id = :session_id and user_id = :user_id),
            log as (
                delete from session_logs where session_id = :session_id and user_id = :user_id)
            delete from outbox_events
            where :ended and user_id = :user_id and type = 'session-ended' and dedupe_key = :dedupe_key
        """),
        {
            "user_id": user_id,
            "session_id": session.id,
            # The event of an open session is still needed to end it.
            "ended": session.ended_at is not None,
            "dedupe_key": f"session-ended:{session.id}",
        },
    )

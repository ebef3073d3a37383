"""Cursor pagination: pages of rows, newest first, that stay stable while rows are added or deleted.

A cursor is the key (created_at, id) of the last row shown; the next page holds what is strictly older. Its form is part of the document,
so that what the document calls a cursor is one.
"""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from pydantic import BaseModel, Field
from sqlalchemy import Connection

from common.errors import InvalidFields
from common.shapes import Shape

MAX_LIMIT = 100
CURSOR = "^[0-9]{1,16}-[0-9a-f]{32}$"
NO_CURSOR = "The cursor is not one of ours. Begin again without it."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PageQuery(Shape):
    """Which page is asked for."""

    cursor: str | None = Field(
        None,
        description="`next` of the page before; none: the first page",
        json_schema_extra={"pattern": CURSOR},  # `read_cursor` refuses with a better sentence
    )
    limit: int = Field(20, ge=1, le=MAX_LIMIT, description="Most items to return")


T = TypeVar("T", bound=BaseModel)


class Page(Shape, Generic[T]):
    """Items, newest first, and the cursor of the next page, null on the last."""

    items: list[T]
    next: str | None = Field(description="Give this as `cursor` to read on")


def older(table: str) -> str:
    """The condition and order of a page over `table`, to end a statement whose `where` has begun; its parameters come from
    `read_page`."""
    return f"""
        (cast(:after_at as timestamptz) is null
             or ({table}.created_at, {table}.id) < (cast(:after_at as timestamptz), cast(:after_id as uuid)))
        order by {table}.created_at desc, {table}.id desc
        limit :rows
    """


def read_page(
    connection: Connection, sql: str, query: PageQuery, item: type[T], **parameters: Any
) -> Page[T]:
    """The page of `sql` that `query` asks for; each row has `created_at` and `id` and becomes an `item`. Raises InvalidFields for a
    cursor that is none of ours."""
    after_at, after_id = read_cursor(query.cursor) if query.cursor is not None else (None, None)
    paging = {"after_at": after_at, "after_id": after_id, "rows": query.limit + 1}
    rows = connection.execute(sa.text(sql), {**parameters, **paging}).mappings().all()
    return cut([item.model_validate(dict(row)) for row in rows], query.limit)


def cut(items: list[T], limit: int) -> Page[T]:
    """The page of the first `limit` of `items`, of which there are more if it goes on; each has `created_at` and `id`."""
    last: Any = items[limit - 1] if len(items) > limit else None
    return Page(items=items[:limit], next=write_cursor(last.created_at, last.id) if last else None)


def write_cursor(created_at: datetime, row_id: uuid.UUID) -> str:
    """The cursor that stands behind this row: microseconds since 1970, and the id."""
    return f"{(created_at - _EPOCH) // timedelta(microseconds=1)}-{row_id.hex}"


def read_cursor(cursor: str) -> tuple[datetime, uuid.UUID]:
    """The key in a cursor. Raises InvalidFields."""
    if not re.fullmatch(CURSOR, cursor):
        raise InvalidFields(NO_CURSOR)
    moment, _, row_id = cursor.partition("-")
    return _EPOCH + timedelta(microseconds=int(moment)), uuid.UUID(row_id)

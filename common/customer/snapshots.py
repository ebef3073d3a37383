"""Snapshots as their owner sees them: listed, read whole, deleted; and the sites that they are about."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import Field, computed_field
from sqlalchemy import Connection

from common.customer.pages import Page, PageQuery, older, read_page
from common.errors import NotFound
from common.memory.snapshot_summary import MAX_SUMMARY, generic_summary
from common.shapes import Shape
from common.text import one_line
from common.tools.registry import tools


class Site(Shape):
    """A site; `data_as_of` is the moment up to which its imported data reaches."""

    id: uuid.UUID
    name: str
    currency: str
    timezone: str
    data_as_of: datetime | None
    created_at: datetime


class Snapshot(Shape):
    """A stored tool result: what was asked, when, and the few values that recall reads."""

    id: uuid.UUID
    conversation_id: uuid.UUID
    conversation_title: str
    message_id: uuid.UUID
    site_id: uuid.UUID | None
    tool_name: str
    tool_input: dict[str, Any]
    signals: dict[str, Any]
    is_error: bool
    observed_at: datetime | None = Field(description="The moment up to which the site's data reached")
    created_at: datetime = Field(description="When the call was made")

    @computed_field(description="The signals in words, as recall writes them")  # type: ignore[prop-decorator]
    @property
    def summary(self) -> str:
        tool = tools().get(self.tool_name)
        if self.is_error or not self.signals:
            return ""
        told = tool.summarise(self.signals, None, None) if tool else generic_summary(self.signals, None, None)
        return one_line(told, MAX_SUMMARY)


class SnapshotDetail(Snapshot):
    """A snapshot with the whole stored result."""

    tool_output: dict[str, Any]


class SnapshotsQuery(PageQuery):
    """Which snapshots."""

    conversation_id: uuid.UUID | None = Field(None, description="Only those of this conversation")
    tool_name: str | None = Field(None, max_length=100, description="Only results of this tool")


def list_sites(connection: Connection, query: PageQuery, *, user_id: uuid.UUID) -> Page[Site]:
    """A page of the user's sites."""
    sql = "select id, name, currency, timezone, data_as_of, created_at from sites where user_id = :user_id"
    return read_page(connection, f"{sql} and {older('sites')}", query, Site, user_id=user_id)


_SNAPSHOT = """
    select s.id, s.conversation_id, c.title as conversation_title, s.message_id, s.site_id, s.tool_name, s.tool_input,
           s.signals, s.is_error, s.observed_at, s.created_at {whole}
    from message_tool_results s
    join conversations c on c.id = s.conversation_id and c.user_id = :user_id
    where s.user_id = :user_id
"""


def list_snapshots(connection: Connection, query: SnapshotsQuery, *, user_id: uuid.UUID) -> Page[Snapshot]:
    """A page of the user's snapshots without their results."""
    sql = f"""{_SNAPSHOT.format(whole="")}
        and (cast(:conversation_id as uuid) is null or s.conversation_id = :conversation_id)
        and (cast(:tool_name as text) is null or s.tool_name = :tool_name)
        and {older("s")}
    """
    wanted = {"conversation_id": query.conversation_id, "tool_name": query.tool_name}
    return read_page(connection, sql, query, Snapshot, user_id=user_id, **wanted)


def read_snapshot(connection: Connection, snapshot_id: uuid.UUID, *, user_id: uuid.UUID) -> SnapshotDetail:
    """One snapshot, whole. Reading it renews nothing. Raises NotFound."""
    row = connection.execute(
        sa.text(f"{_SNAPSHOT.format(whole=', s.tool_output')} and s.id = :id"),
        {"user_id": user_id, "id": snapshot_id},
    ).first()
    if row is None:
        raise NotFound("There is no such snapshot.")
    return SnapshotDetail.model_validate(dict(row._mapping))


def delete_snapshot(connection: Connection, snapshot_id: uuid.UUID, *, user_id: uuid.UUID) -> None:
    """Delete a snapshot and raise its conversation's version, so that no instance recalls it in the next turn. Raises NotFound."""
    deleted = connection.execute(
        sa.text("""
            with gone as (
                delete from message_tool_results where user_id = :user_id and id = :id returning conversation_id)
            update conversations c set version = c.version + 1 from gone
            where c.id = gone.conversation_id and c.user_id = :user_id
        """),
        {"user_id": user_id, "id": snapshot_id},
    )
    if deleted.rowcount != 1:
        raise NotFound("There is no such snapshot.")

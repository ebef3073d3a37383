"""Operations on what is remembered: wrap-ups, documents and memories. The domain is `common.memory`; here are its shapes on the wire."""

from __future__ import annotations

import re
import uuid
from dataclasses import asdict
from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from common import log
from common.config import Settings
from common.customer.api import Answer, Asked, Body, Operations, Visible, Whole
from common.customer.pages import NO_CURSOR, Page, PageQuery, cut, read_cursor
from common.errors import Forbidden, InvalidFields, NotFound, Unavailable
from common.knowledge.embeddings import embedder
from common.memory import documents, entries, wrap_ups
from common.memory.wrap_up_draft import ITEM_CHARACTERS, SUMMARY_CHARACTERS
from common.shapes import Shape

operations = Operations()


class WrapUpItem(Shape):
    """A decision, open item or piece of new context, and the messages of the conversation that it rests on."""

    text: str
    message_ids: list[str] = Field(default_factory=list)


class WrapUp(Shape):
    """The record of a session. `created_at` is the session's last activity."""

    id: uuid.UUID
    session_id: uuid.UUID
    conversation_id: uuid.UUID
    summary: str
    decisions: list[WrapUpItem]
    open_items: list[WrapUpItem]
    new_context: list[WrapUpItem]
    next_session_note: str
    trigger: str
    model: str
    version: int
    created_at: datetime
    edited_at: datetime | None


class ChangedItem(Body):
    """An entry as it shall read. Ids of messages that the wrap-up did not have are left out."""

    text: Visible = Field(max_length=ITEM_CHARACTERS)
    message_ids: list[str] = Field(default_factory=list, max_length=100)


class WrapUpChanges(Body):
    """The fields to replace, at least one; what is left out or null stays. A list is replaced whole."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    summary: Visible | None = Field(None, max_length=SUMMARY_CHARACTERS)
    decisions: list[ChangedItem] | None = Field(None, max_length=100)
    open_items: list[ChangedItem] | None = Field(None, max_length=100)
    new_context: list[ChangedItem] | None = Field(None, max_length=100)
    next_session_note: str | None = Field(None, max_length=ITEM_CHARACTERS)

    @model_validator(mode="after")
    def _something(self) -> WrapUpChanges:
        if not self.model_fields_set:
            raise ValueError("give at least one field to replace")
        return self


def _wrap_up(found: wrap_ups.WrapUp) -> Answer:
    return Answer(WrapUp.model_validate(asdict(found)), version=found.version)


@operations.add("GET", "/v1/session-logs", answer=Page[WrapUp], query=PageQuery)
def list_session_logs(asked: Asked) -> Answer:
    """The wrap-ups, newest first."""
    before = read_cursor(asked.query.cursor) if asked.query.cursor is not None else None
    found = wrap_ups.list_wrap_ups(asked.connection, asked.user_id, before, asked.query.limit + 1)
    return Answer(cut([WrapUp.model_validate(asdict(one)) for one in found], asked.query.limit))


@operations.add("GET", "/v1/session-logs/<id>", answer=WrapUp, versioned=True)
def read_session_log(asked: Asked) -> Answer:
    """A wrap-up."""
    return _wrap_up(wrap_ups.get_wrap_up(asked.connection, asked.user_id, asked.id))


@operations.add(
    "PATCH", "/v1/session-logs/<id>", answer=WrapUp, body=WrapUpChanges, edits=True, versioned=True
)
def edit_session_log(asked: Asked) -> Answer:
    """Correct a wrap-up. What the customer wrote is what the advisor reads from the next turn on."""
    changes = asked.body.model_dump(exclude_none=True)
    edited = wrap_ups.edit_wrap_up(
        asked.connection, asked.user_id, asked.id, changes, asked.if_match, asked.now
    )
    return _wrap_up(edited)


@operations.add("DELETE", "/v1/session-logs/<id>", answer=None)
def delete_session_log(asked: Asked) -> Answer:
    """Delete a wrap-up for good: it is never made again."""
    wrap_ups.delete_wrap_up(asked.connection, asked.user_id, asked.id)
    return Answer()


class Document(Shape):
    """SOUL, BIBLE or a site's HEARTBEAT. One that was never written is empty, with version 0."""

    kind: str
    site_id: uuid.UUID | None
    content: str
    version: int
    author: str | None
    written_at: datetime | None


class DocumentBody(Body):
    """The whole new text."""

    content: str = Field(max_length=documents.MAX_CHARACTERS)


class RestoreBody(Body):
    """The version whose text shall stand again."""

    version: Whole = Field(ge=1, le=2**31)


EDITABLE: dict[str, Literal["soul", "bible"]] = {"soul": "soul", "bible": "bible"}
HEARTBEAT_IS_READ_ONLY = "HEARTBEAT is written each night from the site's numbers and cannot be edited."


def _kind(asked: Asked, *, to_write: bool = False) -> Literal["soul", "bible"]:
    kind = asked.params["kind"]
    if kind == "heartbeat" and to_write:
        raise Forbidden(HEARTBEAT_IS_READ_ONLY)
    if kind not in EDITABLE:
        raise NotFound("The documents to be read one by one are soul and bible; the list has every one.")
    return EDITABLE[kind]


def _document(found: documents.Document) -> Document:
    return Document.model_validate(asdict(found))


def _unwritten(kind: str) -> Document:
    return Document(kind=kind, site_id=None, content="", version=0, author=None, written_at=None)


@operations.add("GET", "/v1/brain/documents", answer=Page[Document], pro=True)
def list_documents(asked: Asked) -> Answer:
    """SOUL, BIBLE and the HEARTBEAT of each site; all on one page."""
    found = [_document(one) for one in documents.list_documents(asked.connection, asked.user_id)]
    written = {one.kind: one for one in found}
    texts = [written.get(kind) or _unwritten(kind) for kind in EDITABLE]
    heartbeats = [one for one in found if one.kind == "heartbeat"]
    return Answer(Page[Document](items=[*texts, *heartbeats], next=None))


@operations.add("GET", "/v1/brain/documents/<kind>", answer=Document, versioned=True, pro=True)
def read_document(asked: Asked) -> Answer:
    """SOUL or BIBLE."""
    kind = _kind(asked)
    found = documents.read_document(asked.connection, asked.user_id, kind)
    shown = _document(found) if found else _unwritten(kind)
    return Answer(shown, version=shown.version)


@operations.add(
    "PUT",
    "/v1/brain/documents/<kind>",
    answer=Document,
    body=DocumentBody,
    edits=True,
    versioned=True,
    pro=True,
)
def write_document(asked: Asked) -> Answer:
    """Replace the text; the text before is kept as a revision. The same text again changes nothing."""
    kind = _kind(asked, to_write=True)
    written = documents.write_document(
        asked.connection, asked.user_id, kind, asked.body.content, "customer", asked.now, asked.if_match
    )
    return Answer(_document(written), version=written.version)


VERSION_CURSOR = "^[0-9]{1,9}$"


class RevisionsQuery(PageQuery):
    """Which page of the earlier texts."""

    cursor: str | None = Field(
        None, description="`next` of the page before", json_schema_extra={"pattern": VERSION_CURSOR}
    )


@operations.add(
    "GET", "/v1/brain/documents/<kind>/revisions", answer=Page[Document], query=RevisionsQuery, pro=True
)
def list_revisions(asked: Asked) -> Answer:
    """The earlier texts, newest first."""
    cursor, limit = asked.query.cursor, asked.query.limit
    if cursor is not None and not re.fullmatch(VERSION_CURSOR, cursor):
        raise InvalidFields(NO_CURSOR)
    found = documents.revisions(
        asked.connection,
        asked.user_id,
        _kind(asked),
        before=int(cursor) if cursor is not None else None,
        limit=limit + 1,
    )
    following = str(found[limit - 1].version) if len(found) > limit else None
    return Answer(Page[Document](items=[_document(one) for one in found[:limit]], next=following))


@operations.add(
    "POST",
    "/v1/brain/documents/<kind>/restore",
    answer=Document,
    body=RestoreBody,
    edits=True,
    versioned=True,
    pro=True,
)
def restore_document(asked: Asked) -> Answer:
    """Make an earlier text the present one, as a new version."""
    kind = _kind(asked, to_write=True)
    restored = documents.restore(
        asked.connection, asked.user_id, kind, asked.body.version, "customer", asked.now, asked.if_match
    )
    return Answer(_document(restored), version=restored.version)


class Memory(Shape):
    """A fact or preference that is remembered, and the message it was learned from, if that is still there."""

    id: uuid.UUID
    content: str
    version: int
    source_message_id: uuid.UUID | None
    created_at: datetime
    updated_at: datetime


class MemoryBody(Body):
    """The text to remember."""

    content: Visible = Field(max_length=entries.MAX_CHARACTERS)


Vector = tuple[list[float] | None, str | None]


def _embed(body: MemoryBody, config: Settings) -> Vector:
    """The text's vector and its model; nothing where the model does not answer: the entry is then found by its words."""
    model = embedder(config)
    try:
        return model.embed([body.content], kind="document")[0], model.name
    except Unavailable as exc:
        log.write_exception("memory not embedded", exc)
        return None, None


def _memory(found: entries.Memory) -> Answer:
    return Answer(Memory.model_validate(asdict(found)), version=found.version)


@operations.add("GET", "/v1/brain/memories", answer=Page[Memory], query=PageQuery)
def list_memories(asked: Asked) -> Answer:
    """The memories, oldest first."""
    after = read_cursor(asked.query.cursor) if asked.query.cursor is not None else None
    found = entries.list_memories(asked.connection, asked.user_id, after=after, limit=asked.query.limit + 1)
    return Answer(cut([Memory.model_validate(asdict(one)) for one in found], asked.query.limit))


@operations.add(
    "POST",
    "/v1/brain/memories",
    answer=Memory,
    body=MemoryBody,
    status=201,
    versioned=True,
    prepare=_embed,
)
def add_memory(asked: Asked) -> Answer:
    """Remember something. What says the same as a memory that is there replaces its text; beyond the tier's limit this is 429."""
    vector, model = asked.prepared
    content = asked.body.content
    return _memory(
        entries.add_memory(asked.connection, asked.account, content, vector, model, None, asked.now)
    )


@operations.add("GET", "/v1/brain/memories/<id>", answer=Memory, versioned=True)
def read_memory(asked: Asked) -> Answer:
    """A memory."""
    return _memory(entries.read_memory(asked.connection, asked.user_id, asked.id))


@operations.add(
    "PATCH",
    "/v1/brain/memories/<id>",
    answer=Memory,
    body=MemoryBody,
    edits=True,
    versioned=True,
    prepare=_embed,
)
def edit_memory(asked: Asked) -> Answer:
    """Give a memory another text."""
    vector, model = asked.prepared
    edited = entries.replace_memory(
        asked.connection,
        asked.user_id,
        asked.id,
        asked.body.content,
        vector,
        model,
        asked.now,
        expected_version=asked.if_match,
    )
    return _memory(edited)


@operations.add("DELETE", "/v1/brain/memories/<id>", answer=None, edits=True)
def delete_memory(asked: Asked) -> Answer:
    """Forget a memory, from the next turn on."""
    entries.delete_memory(asked.connection, asked.user_id, asked.id, expected_version=asked.if_match)
    return Answer()

"""Writing what the model staged for the customer's brain: with the answer, in its transaction, and never at its cost."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from common import db, log
from common.accounts import Account
from common.errors import AppError
from common.memory.documents import lock_brain, read_document, write_document
from common.memory.entries import add_memory, delete_memory, replace_memory
from common.text import to_json
from common.tools.update_customer_brain import revised

LOCK_TIMEOUT_MS = 2_000
NOT_NOW = "This could not be saved right now."

Embed = Callable[[list[str]], list[list[float]]]


class StagedChange(NamedTuple):
    """A change as the tool staged it, with the vector of its text where it is one of MEMORY."""

    target: str
    operation: str
    content: str
    entry_id: uuid.UUID | None = None
    seen_version: int | None = None
    embedding: list[float] | None = None
    model: str | None = None


def prepare_changes(staged: Sequence[dict[str, Any]], embed: Embed, model: str) -> list[StagedChange]:
    """The changes, ready to be written: the texts of new and replaced entries embedded, all by one call. To be called before the
    transaction. Where the model does not answer the entry is kept without a vector, to be found by its words."""
    texts = [s["content"] for s in staged if s["target"] == "memory" and s["operation"] != "delete"]
    try:
        vectors = iter(embed(texts) if texts else [])
    except Exception as exc:  # as below: no change, and no provider of vectors, costs the answer
        log.write_exception("memory not embedded", exc)
        vectors = iter(())
    return [
        StagedChange(
            target=change["target"],
            operation=change["operation"],
            content=change["content"],
            entry_id=uuid.UUID(change["entry_id"]) if change["entry_id"] else None,
            seen_version=change.get("seen_version"),
            embedding=next(vectors, None) if _is_new_text(change) else None,
            model=model,
        )
        for change in staged
    ]


def _is_new_text(change: dict[str, Any]) -> bool:
    return bool(change["target"] == "memory" and change["operation"] != "delete")


def write_changes(
    connection: Connection,
    account: Account,
    message_id: uuid.UUID,
    changes: Sequence[StagedChange],
    now: datetime,
) -> list[str]:
    """Write the changes, each for itself, with the answer `message_id` as their source. Returns, and notes in the answer's details, why
    some could not be: the entry was deleted or the document edited meanwhile, the memory was filled by another tab. None of that raises;
    only a lost connection does."""
    unsaved = []
    for change in changes:
        try:
            with connection.begin_nested():
                connection.execute(
                    sa.text("select set_config('lock_timeout', :ms, true)"), {"ms": str(LOCK_TIMEOUT_MS)}
                )
                _write(connection, account, message_id, change, now)
        except Exception as exc:  # the customer gets the answer, whatever becomes of a change
            if db.went_away(exc):
                raise
            log.write("brain change not saved", severity="WARNING", error_type=type(exc).__name__)
            unsaved.append(exc.detail if isinstance(exc, AppError) else NOT_NOW)
    if unsaved:
        connection.execute(
            sa.text("""
                update messages set details = coalesce(details, '{}') || jsonb_build_object('not_saved', cast(:unsaved as jsonb))
                where id = :message_id and user_id = :user_id
            """),
            {"unsaved": to_json(unsaved), "message_id": message_id, "user_id": account.user_id},
        )
    return unsaved


def _write(
    connection: Connection, account: Account, message_id: uuid.UUID, change: StagedChange, now: datetime
) -> None:
    if change.target in ("soul", "bible"):
        _write_document(connection, account.user_id, change, now)
    elif change.entry_id is None:
        add_memory(connection, account, change.content, change.embedding, change.model, message_id, now)
    elif change.operation == "delete":
        delete_memory(connection, account.user_id, change.entry_id)
    else:
        replace_memory(
            connection,
            account.user_id,
            change.entry_id,
            change.content,
            change.embedding,
            change.model,
            now,
            source_message_id=message_id,
        )


def _write_document(connection: Connection, user_id: uuid.UUID, change: StagedChange, now: datetime) -> None:
    """An addition goes to the text as it now is; what replaces or deletes was meant for the text that the model saw."""
    kind: Literal["soul", "bible"] = "soul" if change.target == "soul" else "bible"
    lock_brain(connection, user_id)
    before = read_document(connection, user_id, kind)
    text = revised(before.content if before else "", change.operation, change.content)
    seen = None if change.operation == "append" else change.seen_version
    write_document(connection, user_id, kind, text, "advisor", now, seen)

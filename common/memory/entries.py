"""MEMORY: the single facts and preferences that a customer asked to be remembered, each an entry that search finds.

A tier holds so many. What says the same as an entry that is there updates it, so that repeating oneself fills nothing.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common.accounts import Account
from common.entitlements import LIMITS
from common.errors import InvalidFields, LimitReached, NotFound, StaleVersion
from common.memory.documents import UNCUT, lock_brain
from common.text import canonical_hash, plain_words, sanitise, to_json

MAX_CHARACTERS = 2_000

# From what cosine on two texts may say the same; tests/database/test_entries.py holds the pairs that set it. A model that was not
# measured must be surer: to keep two entries costs a place, to merge two facts loses one.
SAME_MEANING = {"minilm-l6-v2-int8": 0.87, "hashed-ngrams-1024": 0.87}
SAME_MEANING_UNMEASURED = 0.95


class MemoryFull(LimitReached):
    """The memory is full. Replace or delete an entry first."""

    type = "memory-full"


@dataclass(frozen=True)
class Memory:
    """A MEMORY entry. `version` counts from 1 and is what an edit is checked against."""

    id: uuid.UUID
    content: str
    version: int
    source_message_id: uuid.UUID | None
    created_at: datetime
    updated_at: datetime


_COLUMNS = "id, content, version, source_message_id, created_at, updated_at"


def list_memories(
    connection: Connection,
    user_id: uuid.UUID,
    *,
    after: tuple[datetime, uuid.UUID] | None = None,
    limit: int = 50,
) -> list[Memory]:
    """The user's entries, oldest first; `after` the (created_at, id) of the last one seen, to page on."""
    at, last_id = after or (None, None)
    rows = connection.execute(
        sa.text(f"""
            select {_COLUMNS} from brain_entries
            where user_id = :user_id and collection = 'memory'
              and (cast(:at as timestamptz) is null
                   or (created_at, id) > (cast(:at as timestamptz), cast(:last_id as uuid)))
            order by created_at, id limit :limit
        """),
        {"user_id": user_id, "at": at, "last_id": last_id, "limit": limit},
    )
    return [_memory(row) for row in rows]


def add_memory(
    connection: Connection,
    account: Account,
    content: str,
    embedding: Sequence[float] | None,
    model: str | None,
    source_message_id: uuid.UUID | None,
    now: datetime,
) -> Memory:
    """Keep `content`, sanitised, as an entry; where an entry says the same, that one gets this text instead.

    `embedding` is the text's vector by `model`; without one only the words are compared and found. Raises MemoryFull at the tier's limit,
    which holds for any number of writers at once, and InvalidFields for an empty text or one of more than 2,000 characters.
    """
    text = _checked(content)
    lock_brain(connection, account.user_id)
    present = _compared(connection, account.user_id, embedding, model)
    for row in present:
        if _same(row, text, model):
            return _update(
                connection, account.user_id, row.id, text, embedding, model, source_message_id, now
            )
    most = LIMITS[account.tier].memories
    if len(present) >= most:
        raise MemoryFull(f"The memory is full: {most} entries. Replace or delete one first.")
    return _memory(
        connection.execute(
            sa.text(f"""
                insert into brain_entries (tenant_id, user_id, collection, document, title, content, content_hash, embedding,
                                           embedding_model, source_message_id, created_at, updated_at)
                values (:tenant_id, :user_id, 'memory', '', '', :content, :hash, cast(:embedding as vector),
                        cast(:model as text), cast(:source as uuid), :now, :now)
                returning {_COLUMNS}
            """),
            {
                "tenant_id": str(account.tenant_id),
                "user_id": account.user_id,
                **_values(text, embedding, model),
                "source": source_message_id,
                "now": now,
            },
        ).one()
    )


def replace_memory(
    connection: Connection,
    user_id: uuid.UUID,
    entry_id: uuid.UUID,
    content: str,
    embedding: Sequence[float] | None,
    model: str | None,
    now: datetime,
    *,
    source_message_id: uuid.UUID | None = None,
    expected_version: int | None = None,
) -> Memory:
    """Give the entry another text. Raises NotFound when it is not there or not theirs, StaleVersion when it is no longer
    `expected_version`, InvalidFields."""
    text = _checked(content)
    lock_brain(connection, user_id)
    _check_version(connection, user_id, entry_id, expected_version)
    return _update(connection, user_id, entry_id, text, embedding, model, source_message_id, now)


def delete_memory(
    connection: Connection, user_id: uuid.UUID, entry_id: uuid.UUID, *, expected_version: int | None = None
) -> None:
    """Forget the entry. Raises NotFound when it is not there or not theirs, StaleVersion when it is no longer `expected_version`."""
    lock_brain(connection, user_id)
    _check_version(connection, user_id, entry_id, expected_version)
    connection.execute(
        sa.text("delete from brain_entries where id = :id and user_id = :user_id and collection = 'memory'"),
        {"id": entry_id, "user_id": user_id},
    )


def read_memory(connection: Connection, user_id: uuid.UUID, entry_id: uuid.UUID) -> Memory:
    """The entry. Raises NotFound when it is not there or not theirs."""
    row = connection.execute(
        sa.text(
            f"select {_COLUMNS} from brain_entries where id = :id and user_id = :user_id and collection = 'memory'"
        ),
        {"id": entry_id, "user_id": user_id},
    ).first()
    if row is None:
        raise NotFound("There is no such memory.")
    return _memory(row)


def same_meaning(one: str, other: str, similarity: float, model: str | None) -> bool:
    """Whether two texts say the same: near enough by `model`, and with the same particulars. A sentence with another number, name, day
    or "not" is near in any model and says something else."""
    # Written so that NaN, which a text without words makes of a cosine, is the same as nothing.
    if not similarity >= SAME_MEANING.get(model or "", SAME_MEANING_UNMEASURED):
        return False
    return _particulars(one) <= _stems(other) and _particulars(other) <= _stems(one)


_TURNING = {"not", "no", "never", "without", "this", "next", "last", "nicht", "kein", "keine", "nie", "ohne"}
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+(?:['’]t\b)?")


def _particulars(text: str) -> set[str]:
    """The words of `text` on which its meaning turns: numbers, names (capitals inside a sentence) and negations."""
    found = set()
    for match in _WORD.finditer(text):
        word = match.group()
        begins = not text[: match.start()].rstrip() or text[: match.start()].rstrip()[-1] in ".!?:\n-"
        if word[0].isdigit() or word.lower() in _TURNING or word.endswith(("'t", "’t")):
            found.add(word.lower())
        elif word[0].isupper() and not begins and len(word) > 1:
            found.add(_stem(word))
    return found


def _stems(text: str) -> set[str]:
    words = _WORD.findall(text)
    return {w.lower() for w in words} | {_stem(w) for w in words}


def _stem(word: str) -> str:
    return word.lower().removesuffix("s")


def _compared(
    connection: Connection, user_id: uuid.UUID, embedding: Sequence[float] | None, model: str | None
) -> list[Any]:
    """The user's entries, nearest first. `similarity` is 0 for one that another model embedded."""
    return list(
        connection.execute(
            sa.text(f"""
                select {_COLUMNS}, content_hash,
                       coalesce(case when embedding_model = cast(:model as text)
                                     then 1 - (embedding <=> cast(:embedding as vector)) end, 0) as similarity
                from brain_entries where user_id = :user_id and collection = 'memory'
                order by similarity desc, created_at, id
            """),
            {"user_id": user_id, **_values("", embedding, model)},
        )
    )


def _same(row: Any, text: str, model: str | None) -> bool:
    return row.content_hash == _hash(text) or same_meaning(row.content, text, row.similarity, model)


def _update(
    connection: Connection,
    user_id: uuid.UUID,
    entry_id: uuid.UUID,
    text: str,
    embedding: Sequence[float] | None,
    model: str | None,
    source_message_id: uuid.UUID | None,
    now: datetime,
) -> Memory:
    row = connection.execute(
        sa.text(f"""
            update brain_entries set content = :content, content_hash = :hash, embedding = cast(:embedding as vector),
                embedding_model = cast(:model as text), source_message_id = cast(:source as uuid),
                version = version + 1, updated_at = :now
            where id = :id and user_id = :user_id and collection = 'memory'
            returning {_COLUMNS}
        """),
        {
            "id": entry_id,
            "user_id": user_id,
            **_values(text, embedding, model),
            "source": source_message_id,
            "now": now,
        },
    ).first()
    if row is None:
        raise NotFound("There is no such memory.")
    return _memory(row)


def _check_version(
    connection: Connection, user_id: uuid.UUID, entry_id: uuid.UUID, expected_version: int | None
) -> None:
    found = read_memory(connection, user_id, entry_id)
    if expected_version is not None and found.version != expected_version:
        raise StaleVersion()


def _values(text: str, embedding: Sequence[float] | None, model: str | None) -> dict[str, Any]:
    vector = None if embedding is None else to_json(list(embedding))
    return {
        "content": text,
        "hash": _hash(text),
        "embedding": vector,
        "model": model if vector else None,
    }


def _checked(content: str) -> str:
    text = sanitise(content, limit=UNCUT).strip()
    if not text:
        raise InvalidFields("There is nothing to remember in an empty text.")
    if len(text) > MAX_CHARACTERS:
        raise InvalidFields(f"A memory holds at most {MAX_CHARACTERS} characters.")
    return text


def _hash(text: str) -> str:
    """Equal for texts with the same words, however they are spaced, capitalised and punctuated."""
    return canonical_hash(plain_words(text))


def _memory(row: Any) -> Memory:
    return Memory(row.id, row.content, row.version, row.source_message_id, row.created_at, row.updated_at)

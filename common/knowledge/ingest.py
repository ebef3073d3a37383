"""The knowledge base's only writer: `ingest` makes it equal to a folder, `reembed` moves all entries to the model in use."""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from common.errors import InvalidRequest
from common.knowledge import documents, lexical
from common.knowledge.documents import Chunk, UnreadableDocument
from common.knowledge.embeddings import Embedder, text_to_embed
from common.knowledge.search import MixedModels, literal, vector_text
from common.text import clean_json, to_json

BATCH = 64
Progress = Callable[[int, int], None]
"""Called with what is done and the total."""


@dataclass
class IngestReport:
    """What `ingest` did, in entries but for `files`. `unreadable` holds (file, reason); what such a file gave before stays."""

    files: int = 0
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    embedded: int = 0
    unreadable: list[tuple[str, str]] = field(default_factory=list)


def ingest(
    owner: Engine,
    folder: Path,
    model: Embedder,
    *,
    now: datetime,
    progress: Progress = lambda done, total: None,
) -> IngestReport:
    """Make the knowledge base equal to the articles in `folder`. Text whose hash is known is not embedded again and keeps its entry's
    id; what is gone is removed. All of it commits at once, or nothing; repeating it changes nothing.

    Raises InvalidRequest for a folder without a readable article, so that a mistyped path empties nothing, and MixedModels where entries
    of another model would stay.
    """
    report = IngestReport()
    chunks = _read(folder, report)
    with owner.begin() as connection:
        stored = _stored(connection, model)
    plan = _plan(chunks, stored, {path for path, _ in report.unreadable})
    vectors = _embed(plan.new, model, progress)
    with owner.begin() as connection:
        _no_time_limit(connection)
        _write(connection, plan, vectors, model.name, now)
        if plan.new or plan.gone or plan.changed:
            lexical.count_terms(connection)
    make_index(owner, model)
    report.added, report.removed, report.updated = len(plan.new), len(plan.gone), len(plan.changed)
    report.unchanged, report.embedded = len(chunks) - len(plan.new) - len(plan.changed), len(vectors)
    return report


def reembed(
    owner: Engine, sweep: Engine, model: Embedder, *, progress: Progress = lambda done, total: None
) -> int:
    """Embed every entry that another model embedded, or none, with `model`: the knowledge base as its owner, MEMORY as the sweep role,
    then make the index. Returns how many. Commits by batches: a run that was stopped goes on where it was."""
    scopes = [(owner, "user_id is null"), (sweep, "user_id is not null")]
    counts = [_outdated(engine, scope, model) for engine, scope in scopes]
    total, done = sum(counts), 0
    for engine, scope in scopes:
        while rows := _next_outdated(engine, scope, model):
            vectors = model.embed([text_to_embed(row.title, row.content) for row in rows], kind="document")
            _replace_vectors(engine, scope, model, rows, vectors)
            done += len(rows)
            progress(done, max(total, done))
    make_index(owner, model)
    return done


def make_index(owner: Engine, model: Embedder) -> None:
    """Make the HNSW index of the knowledge base for `model`, unless it stands; one of another model goes. Writers are not blocked."""
    suffix = hashlib.sha256(f"{model.name} {model.dimensions}".encode()).hexdigest()[:8]
    name = f"ix_brain_entries_embedding_{suffix}"
    with _maintenance(owner) as connection:
        found = connection.execute(
            sa.text(
                "select c.relname, i.indisvalid from pg_index i join pg_class c on c.oid = i.indexrelid"
                " where i.indrelid = 'brain_entries'::regclass and starts_with(c.relname, 'ix_brain_entries_embedding_')"
            )
        ).all()
        standing = {row.relname for row in found if row.indisvalid}
        for row in found:
            # An invalid one is what a build that was stopped left.
            if row.relname != name or not row.indisvalid:
                connection.execute(sa.text(f'drop index concurrently "{row.relname}"'))
        if name not in standing:
            connection.execute(
                sa.text(
                    f"create index concurrently {name} on brain_entries using hnsw"
                    f" ((cast(embedding as halfvec({model.dimensions}))) halfvec_cosine_ops)"
                    f" where tenant_id = 'global' and embedding_model = {literal(model.name)}"
                )
            )


@dataclass(frozen=True)
class _Plan:
    new: list[Chunk]
    changed: list[tuple[uuid.UUID, Chunk]]
    gone: list[uuid.UUID]


def _read(folder: Path, report: IngestReport) -> list[Chunk]:
    if not folder.is_dir():
        raise InvalidRequest(f"{folder} is no folder.")
    chunks: list[Chunk] = []
    for path in documents.files(folder):
        try:
            chunks += documents.split(documents.read(path, folder))
            report.files += 1
        except (UnreadableDocument, RecursionError) as exc:
            reason = "it is nested too deeply" if isinstance(exc, RecursionError) else str(exc)
            report.unreadable.append((path.relative_to(folder).as_posix(), reason))
    if not chunks:
        raise InvalidRequest(
            f"There is no readable article in {folder} (Markdown, HTML or text). Nothing was changed.",
            unreadable=report.unreadable,
        )
    return chunks


def _stored(connection: Connection, model: Embedder) -> list[sa.Row[Any]]:
    rows = connection.execute(
        sa.text(
            "select id, document, title, url, collection, context, attributes, content_hash, embedding_model"
            " from brain_entries where tenant_id = 'global'"
        )
    ).all()
    if any(row.embedding_model != model.name for row in rows):
        raise MixedModels()
    return list(rows)


def _plan(chunks: Sequence[Chunk], stored: Sequence[sa.Row[Any]], kept: set[str]) -> _Plan:
    """What to write. A chunk takes over the entry of the same text: the one of its own document, or else one that a renamed file left."""
    own: dict[tuple[str, str], sa.Row[Any]] = {(row.document, row.content_hash): row for row in stored}
    wanted = {(chunk.document.path, chunk.content_hash) for chunk in chunks}
    left: dict[str, list[sa.Row[Any]]] = {}
    for row in stored:
        if (row.document, row.content_hash) not in wanted and row.document not in kept:
            left.setdefault(row.content_hash, []).append(row)
    new: list[Chunk] = []
    changed: list[tuple[uuid.UUID, Chunk]] = []
    for chunk in chunks:
        entry = own.get((chunk.document.path, chunk.content_hash))
        if entry is None and left.get(chunk.content_hash):
            entry = left[chunk.content_hash].pop()
        if entry is None:
            new.append(chunk)
        elif any(getattr(entry, key) != value for key, value in _details(chunk).items()):
            changed.append((entry.id, chunk))
    return _Plan(new, changed, [row.id for rows in left.values() for row in rows])


def _details(chunk: Chunk) -> dict[str, Any]:
    """What of an entry can change without its text."""
    document = chunk.document
    return {
        "document": document.path,
        "url": document.url,
        "collection": document.collection,
        "context": chunk.context,
        "attributes": clean_json(document.attributes),
    }


def _embed(chunks: Sequence[Chunk], model: Embedder, progress: Progress) -> list[str]:
    vectors: list[str] = []
    for batch in _batches(chunks):
        found = model.embed([text_to_embed(chunk.title, chunk.content) for chunk in batch], kind="document")
        vectors += map(vector_text, found)
        progress(len(vectors), len(chunks))
    return vectors


def _batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))


_COLUMNS = (
    "id uuid, document text, title text, url text, collection text, content text, context text, attributes jsonb,"
    " content_hash text, embedding text"
)

_INSERT = f"""
insert into brain_entries (tenant_id, document, title, url, collection, content, context, attributes, content_hash, embedding,
    embedding_model, created_at, updated_at)
select 'global', document, title, url, collection, content, context, attributes, content_hash, cast(embedding as vector), :model, :now, :now
from jsonb_to_recordset(cast(:rows as jsonb)) as r({_COLUMNS})
on conflict (document, content_hash) where tenant_id = 'global' do nothing
"""

_UPDATE = f"""
update brain_entries e set document = r.document, url = r.url, collection = r.collection, context = r.context, attributes = r.attributes,
    updated_at = :now, version = version + 1
from jsonb_to_recordset(cast(:rows as jsonb)) as r({_COLUMNS})
where e.id = r.id and e.tenant_id = 'global'
"""


def _write(connection: Connection, plan: _Plan, vectors: Sequence[str], model: str, now: datetime) -> None:
    connection.execute(
        sa.text("delete from brain_entries where tenant_id = 'global' and id = any(cast(:ids as uuid[]))"),
        {"ids": plan.gone},
    )
    changed = [{"id": str(entry_id), **_details(chunk)} for entry_id, chunk in plan.changed]
    for rows in _batches(changed):
        connection.execute(sa.text(_UPDATE), {"rows": to_json(rows), "now": now})
    added = [
        {
            "title": chunk.title,
            "content": chunk.content,
            "content_hash": chunk.content_hash,
            "embedding": vector,
            **_details(chunk),
        }
        for chunk, vector in zip(plan.new, vectors, strict=True)
    ]
    for rows in _batches(added):
        connection.execute(sa.text(_INSERT), {"rows": to_json(rows), "model": model, "now": now})


def _outdated(engine: Engine, scope: str, model: Embedder) -> int:
    with engine.begin() as connection:
        found = connection.scalar(
            sa.text(
                f"select count(*) from brain_entries where {scope} and embedding_model is distinct from :model"
            ),
            {"model": model.name},
        )
    return int(found or 0)


def _next_outdated(engine: Engine, scope: str, model: Embedder) -> Sequence[sa.Row[Any]]:
    with engine.begin() as connection:
        return connection.execute(
            sa.text(
                f"select id, title, content from brain_entries where {scope}"
                " and embedding_model is distinct from :model order by id limit :batch"
            ),
            {"model": model.name, "batch": BATCH},
        ).all()


def _replace_vectors(
    engine: Engine,
    scope: str,
    model: Embedder,
    rows: Sequence[sa.Row[Any]],
    vectors: Sequence[Sequence[float]],
) -> None:
    """Store the new vectors, but not that of a text which was edited meanwhile: the next round finds it again."""
    values = [
        {"id": str(row.id), "title": row.title, "content": row.content, "embedding": vector_text(vector)}
        for row, vector in zip(rows, vectors, strict=True)
    ]
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                f"update brain_entries e set embedding = cast(r.embedding as vector), embedding_model = :model"
                f" from jsonb_to_recordset(cast(:rows as jsonb)) as r({_COLUMNS})"
                f" where e.{scope} and e.id = r.id and e.title = r.title and e.content = r.content"
            ),
            {"rows": to_json(values), "model": model.name},
        )


def _no_time_limit(connection: Connection) -> None:
    connection.execute(sa.text("select set_config('statement_timeout', '0', true)"))


@contextlib.contextmanager
def _maintenance(owner: Engine) -> Iterator[Connection]:
    """A connection outside a transaction, for what cannot run in one, without the limit on a statement's time; closed afterwards."""
    with owner.connect() as plain:
        connection = plain.execution_options(isolation_level="AUTOCOMMIT")
        connection.execute(sa.text("select set_config('statement_timeout', '0', false)"))
        try:
            yield connection
        finally:
            connection.invalidate()

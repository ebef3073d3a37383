"""LoCoMo: how much of a question's gold evidence the real search finds, on PostgreSQL under row level security.

    python -m benchmarks.locomo --data DIR [--quick | --only N] [--json FILE]

DIR holds the conversations, one JSON file each. Each is ingested as the MEMORY of a user of its own: a turn is an entry, its date and
speaker the title, the two turns before and after it the context. Each question of categories 1-4 is asked through `search_brain` as the
application's role. Reported: the share of a question's evidence turns among the first 5 and 10 found, and the share whose text is in a
block of 300 tokens, packed by `pack` and by taking the hits in order.
"""

from __future__ import annotations

import json
import statistics
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Engine
from tqdm import tqdm

from benchmarks import report
from benchmarks.report import Row
from common.config import Settings
from common.db import make_engine, user_transaction
from common.knowledge.embeddings import Embedder, embedder, text_to_embed
from common.knowledge.packing import pack
from common.knowledge.search import Candidate, search_brain, vector_text
from common.migrations import run as migrations
from common.text import canonical_hash, count_tokens
from local import postgres

BLOCK_TOKENS = 300
NEIGHBOURS = 2
FETCHED = 10


@dataclass(frozen=True)
class Turn:
    id: str
    session: int
    date: str
    speaker: str
    text: str

    @property
    def title(self) -> str:
        return f"{self.date}, {self.speaker}"


@dataclass(frozen=True)
class Question:
    text: str
    category: int
    evidence: frozenset[str]


def read(path: Path) -> tuple[list[Turn], list[Question]]:
    """The turns and the questions (categories 1-4, with evidence) of a conversation."""
    data = json.loads(path.read_text())
    turns = []
    session = 1
    while f"session_{session}" in data:
        for turn in data[f"session_{session}"]:
            photo = f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""
            date = data[f"session_{session}_date_time"]
            turns.append(Turn(turn["dia_id"], session, date, turn["speaker"], turn["text"] + photo))
        session += 1
    questions = [
        Question(q["question"], q["category"], frozenset(q["evidence"]))
        for q in data["qa"]
        if q["category"] in (1, 2, 3, 4) and q["evidence"]
    ]
    return turns, questions


def context(turns: Sequence[Turn], index: int) -> str:
    """The turns around one, within its session."""
    around = range(max(index - NEIGHBOURS, 0), min(index + NEIGHBOURS + 1, len(turns)))
    session = turns[index].session
    return "\n".join(
        f"{turns[i].speaker}: {turns[i].text}" for i in around if i != index and turns[i].session == session
    )


_INSERT = """
insert into brain_entries (tenant_id, user_id, collection, document, title, content, context, content_hash, embedding, embedding_model,
    created_at, updated_at)
select :tenant_id, :user_id, 'memory', r.document, r.title, r.content, r.context, r.content_hash, cast(r.embedding as vector), :model,
    :now, :now
from jsonb_to_recordset(cast(:rows as jsonb)) as r(document text, title text, content text, context text, content_hash text, embedding text)
"""


def ingest(
    app: Engine, user_id: uuid.UUID, tenant_id: uuid.UUID, turns: Sequence[Turn], model: Embedder
) -> None:
    """Store the turns as the user's MEMORY, as the application itself."""
    vectors = model.embed([text_to_embed(turn.title, turn.text) for turn in turns], kind="document")
    rows = [
        {
            "document": turn.id,
            "title": turn.title,
            "content": turn.text,
            "context": context(turns, index),
            "content_hash": canonical_hash(turn.text),
            "embedding": vector_text(vector),
        }
        for index, (turn, vector) in enumerate(zip(turns, vectors, strict=True))
    ]
    with user_transaction(user_id, source=app) as connection:
        connection.execute(
            sa.text(_INSERT),
            {
                "tenant_id": str(tenant_id),
                "user_id": user_id,
                "model": model.name,
                "now": datetime.now(UTC),
                "rows": json.dumps(rows),
            },
        )


def day(found: Candidate) -> str:
    return found.title.rsplit(", ", 1)[0].rsplit(" on ", 1)[-1] + ":"


def said(found: Candidate) -> str:
    return f"{found.title.rsplit(', ', 1)[1]}: {found.content}"


def in_order(found: Sequence[Candidate], budget: int) -> list[Candidate]:
    """The plain way to fill a block: hits in order, until one does not fit."""
    taken: list[Candidate] = []
    used = 0
    for candidate in found:
        used += count_tokens(f"{day(candidate)} {said(candidate)}\n")
        if used > budget:
            break
        taken.append(candidate)
    return taken


def measure(question: Question, found: Sequence[Candidate]) -> dict[str, float]:
    """The share of the question's evidence in each cut of what was found."""

    def share(some: Sequence[Candidate]) -> float:
        return len(question.evidence & {c.document for c in some}) / len(question.evidence)

    return {
        "R@5": share(found[:5]),
        "R@10": share(found[:10]),
        "block, in order": share(in_order(found, BLOCK_TOKENS)),
        "block, packed": share(pack(found, BLOCK_TOKENS, heading=day, line=said)[1]),
    }


@dataclass(frozen=True)
class Database:
    superuser: Engine
    app: Engine


def database() -> Iterator[Database]:
    """A migrated throw-away database."""
    with postgres.throw_away() as server:
        postgres.create_database(server)
        config = Settings(database_url=server.url())
        migrations.migrate(make_engine(config, "owner"))
        yield Database(sa.create_engine(server.url()), make_engine(config, "app"))


def add_user(superuser: Engine) -> tuple[uuid.UUID, uuid.UUID]:
    """A new user and tenant."""
    user_id, tenant_id = uuid.uuid4(), uuid.uuid4()
    with superuser.begin() as connection:
        connection.execute(sa.text("insert into tenants (id, name) values (:id, 'bench')"), {"id": tenant_id})
        connection.execute(
            sa.text(
                "insert into users (id, tenant_id, email, issuer, subject) values (:id, :t, 'b', 'b', :s)"
            ),
            {"id": user_id, "t": tenant_id, "s": str(user_id)},
        )
    return user_id, tenant_id


def run(folder: Path, only: int | None = None) -> dict[str, Any]:
    """The figures over all questions, and by category, of the folder's first `only` conversations or all."""
    model = embedder(Settings(embedding_model="local"))
    results: list[tuple[int, dict[str, float]]] = []
    paths = sorted(folder.glob("*.json"))[:only]
    for found in database():
        for path in tqdm(paths, unit="conversation"):
            turns, questions = read(path)
            user_id, tenant_id = add_user(found.superuser)
            ingest(found.app, user_id, tenant_id, turns, model)
            vectors = model.embed([q.text for q in questions], kind="query")
            for question, vector in zip(questions, vectors, strict=True):
                with user_transaction(user_id, source=found.app) as connection:
                    hits = search_brain(
                        connection,
                        user_id=user_id,
                        query=question.text,
                        query_embedding=vector,
                        model=model.name,
                        collection="memory",
                        limit=FETCHED,
                        trace=True,
                    ).trace
                results.append((question.category, measure(question, hits)))
    names = list(results[0][1])
    by_category = {
        str(c): {n: round(statistics.fmean(r[n] for k, r in results if k == c), 4) for n in names}
        for c in sorted({k for k, _ in results})
    }
    overall = {n: round(statistics.fmean(r[n] for _, r in results), 4) for n in names}
    return {
        "conversations": len(paths),
        "questions": len(results),
        "all": overall,
        "by category": by_category,
    }


def main(argv: list[str] | None = None) -> None:
    """Ingest, ask, publish."""
    arguments = report.parser(__doc__)
    arguments.add_argument("--data", type=Path, required=True, help="folder of conversations")
    arguments.add_argument("--only", type=int, metavar="N", help="of the conversations the first N")
    arguments.add_argument("--quick", action="store_true", help="the first conversation")
    asked = arguments.parse_args(argv)
    figures = run(asked.data, 1 if asked.quick else asked.only)
    print(json.dumps(figures, indent=2), flush=True)
    found = figures["all"]
    in_order = found["block, in order"]
    report.publish(
        [
            Row("LoCoMo R@5", found["R@5"], "", "≥ 0.62"),
            Row("LoCoMo R@10", found["R@10"], "", "≥ 0.73"),
            Row("LoCoMo evidence within 300 tokens, packed", found["block, packed"], "", f"> {in_order:.4f}"),
            Row("LoCoMo evidence within 300 tokens, the hits in order", in_order, ""),
        ],
        asked.json,
    )


if __name__ == "__main__":
    main()

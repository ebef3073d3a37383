"""The retrieval log of a turn over HTTP: what it holds on both answer forms, and that its failure costs nothing else."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from common import events
from common.config import settings
from common.knowledge import retrieval_log
from common.knowledge.embeddings import HashedEmbedder
from common.knowledge.search import vector_text
from common.warehouse.schemas import STREAM_COLUMNS, STREAM_TOPIC
from tests.functions.conftest import Recorder, System, parts
from tests.functions.scripted import ScriptedModel, play

QUESTION = "Please give me some advice: how should I plan a discount campaign for spring?"
TOPICS = (
    "discount campaign",
    "spring offers",
    "campaign plan",
    "advice on discounts",
    "plan for spring",
    "discount codes",
)


def add_entry(system: System, title: str, content: str, *, person: Any = None) -> uuid.UUID:
    """An entry of the knowledge base; with `person` one of their MEMORY."""
    entry = uuid.uuid4()
    model = HashedEmbedder()
    (vector,) = model.embed([content], kind="document")
    system.database.run(
        "insert into brain_entries (id, tenant_id, user_id, collection, document, title, content, content_hash, embedding,"
        " embedding_model, created_at, updated_at) values (:id, :tenant, :user, :collection, :title, :title, :content, '',"
        " cast(:vector as vector), :model, now(), now())",
        id=entry,
        tenant=str(person.tenant_id) if person else "global",
        user=person.user_id if person else None,
        collection="memory" if person else "articles",
        title=title,
        content=content,
        vector=vector_text(vector),
        model=model.name,
    )
    return entry


@pytest.fixture
def knowledge(system: System) -> dict[str, uuid.UUID]:
    """Entries that the question finds, by title, more than are put into a prompt; and a memory that it finds too."""
    add_entry(system, "remembered", "We plan a discount campaign for spring", person=system.owner)
    return {
        topic: add_entry(system, topic, f"How to go about a {topic}: a discount campaign for spring.")
        for topic in TOPICS
    }


def ask(system: System, stream: bool) -> dict[str, Any]:
    """One turn; its text, sources and message id."""
    response = system.chat(QUESTION, stream=stream)
    assert response.status_code == 200
    if not stream:
        answer: dict[str, Any] = response.json
        return answer
    chunks = parts(response)
    assert chunks[-1]["type"] == "finish", chunks[-1]
    return {
        "text": "".join(c["delta"] for c in chunks if c["type"] == "text-delta"),
        "sources": [c for c in chunks if c["type"] == "source-document"],
        "message_id": chunks[0]["messageId"],
    }


def logged(system: System) -> list[Any]:
    return system.database.rows("select * from retrieval_events order by rank")


@pytest.mark.parametrize("stream", [False, True], ids=["document", "stream"])
def test_the_log_agrees_with_the_prompt_and_the_answer(
    system: System, knowledge: dict[str, uuid.UUID], monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    model = play(monkeypatch, ["Offer it early [2], and tell everyone [1][99]."])
    answer = ask(system, stream)
    rows = logged(system)
    assert [row.rank for row in rows] == list(range(1, len(knowledge) + 1))
    assert {row.entry_id for row in rows} == set(knowledge.values())
    shown = re.findall(r"^\[(\d+)\] (.+?)(?: \(|$)", knowledge_section(model), re.MULTILINE)
    surfaced = [row.entry_id for row in rows if row.surfaced]
    assert 0 < len(surfaced) < len(rows)
    assert len(shown) == len(surfaced)
    for (_, title), entry in zip(shown, surfaced, strict=True):
        assert next(t for t in TOPICS if t in title) == next(t for t, e in knowledge.items() if e == entry)
    assert [row.entry_id for row in rows if row.cited] == surfaced[:2]
    assert len(answer["sources"]) == 2
    message = system.database.rows("select id, created_at from messages where role = 'assistant'")[0]
    assert {row.message_id for row in rows} == {message.id}
    assert {row.user_id for row in rows} == {system.owner.user_id}
    assert {row.created_at for row in rows} == {message.created_at.replace(tzinfo=None)}
    assert all(-1 <= row.score <= 1 for row in rows)


def knowledge_section(model: ScriptedModel) -> str:
    return next(s.text for s in model.requests[-1].system if s.name == "knowledge")


@contextmanager
def locked(system: System) -> Iterator[None]:
    with system.database.superuser.connect() as connection, connection.begin():
        connection.execute(sa.text("lock table retrieval_events in access exclusive mode"))
        yield


@contextmanager
def dropped(system: System) -> Iterator[None]:
    system.database.run("drop table retrieval_events")
    yield


@contextmanager
def refusing(system: System) -> Iterator[None]:
    system.database.run("alter table retrieval_events add constraint never check (rank < 0)")
    yield


@contextmanager
def forbidden(system: System) -> Iterator[None]:
    system.database.run("revoke insert on retrieval_events from memberintel_app")
    yield


@pytest.mark.parametrize("stream", [False, True], ids=["document", "stream"])
@pytest.mark.parametrize("broken", [locked, dropped, refusing, forbidden])
def test_when_the_log_cannot_be_written_the_answer_its_sources_and_charges_are_there(
    system: System,
    knowledge: dict[str, uuid.UUID],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    broken: Any,
    stream: bool,
) -> None:
    monkeypatch.setattr(retrieval_log, "LOCK_TIMEOUT_MS", 50)
    play(monkeypatch, ["Offer it early [1]."])
    with broken(system):
        answer = ask(system, stream)
    assert "Offer it early" in answer["text"]
    assert len(answer["sources"]) == 1
    (message,) = system.database.rows("select text, status, details from messages where role = 'assistant'")
    assert message.status == "complete"
    assert [s["n"] for s in message.details["sources"]] == [1]
    assert [r.state for r in system.database.rows("select state from usage_charges")] == ["settled"]
    assert [r.status for r in system.database.rows("select status from turns")] == ["complete"]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    (error,) = [line for line in lines if line["message"] == "retrieval log not written"]
    assert error["severity"] == "ERROR"
    assert QUESTION not in json.dumps(lines)


def test_a_turn_that_searched_nothing_logs_nothing(system: System) -> None:
    system.chat("Hello there")
    assert logged(system) == []


class Streaming(Recorder):
    """A publisher that keeps rows as well."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, dict[str, Any]]] = []

    def publish_rows(self, topic: str, rows: Any) -> None:
        if self.fails:
            raise ConnectionError
        self.rows += [(topic, row) for row in rows]


@pytest.fixture
def streaming(monkeypatch: pytest.MonkeyPatch) -> Streaming:
    made = Streaming()
    monkeypatch.setattr(events, "publisher", lambda _config: made)
    return made


def test_the_sink_both_publishes_what_was_logged_by_the_streams_schema(
    system: System, knowledge: dict[str, uuid.UUID], streaming: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMBERINTEL_RETRIEVAL_SINK", "both")
    settings.cache_clear()
    play(monkeypatch, ["Offer it early [1]."])
    ask(system, stream=False)
    assert {topic for topic, _ in streaming.rows} == {STREAM_TOPIC}
    kinds = {"STRING": str, "INTEGER": int, "FLOAT": float, "BOOLEAN": bool, "DATETIME": str}
    for _, row in streaming.rows:
        assert {name: type(value) for name, value in row.items()} == {
            c.name: kinds[c.type] for c in STREAM_COLUMNS
        }
    here = {
        (str(r.message_id), r.rank, str(r.entry_id), r.surfaced, r.cited, r.created_at.isoformat())
        for r in logged(system)
    }
    names = ("message_id", "rank", "entry_id", "surfaced", "cited", "created_at")
    assert {tuple(row[name] for name in names) for _, row in streaming.rows} == here
    assert str(system.owner.user_id) not in json.dumps(streaming.rows)


@pytest.mark.parametrize(("sink", "fails"), [("postgres", False), ("both", True)])
def test_the_sink_postgres_publishes_nothing_and_a_topic_that_is_away_costs_nothing(
    system: System,
    knowledge: dict[str, uuid.UUID],
    streaming: Streaming,
    monkeypatch: pytest.MonkeyPatch,
    sink: str,
    fails: bool,
) -> None:
    monkeypatch.setenv("MEMBERINTEL_RETRIEVAL_SINK", sink)
    settings.cache_clear()
    streaming.fails = fails
    play(monkeypatch, ["Offer it early [1]."])
    answer = ask(system, stream=False)
    assert answer["status"] == "complete"
    assert streaming.rows == []
    assert len(logged(system)) == len(knowledge)

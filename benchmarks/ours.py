"""Our own turn for the benchmarks: what `functions/chat` does between the parsed request and the finished answer.

That is: finding the caller and counting the request; the customer's message with its lease and reservation, committed; routing; context
(history, documents, wrap-ups, recall, MEMORY and the knowledge base); the prompt; two calls of the model with a tool call between them,
each reserved and settled; the answer with its events and retrieval log, committed. Not in it: HTTP, the token's check and the stream to
the client. The model and the embedding cost nothing, and neither does the tool, which returns a fixed result.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import sqlalchemy as sa

from benchmarks import script
from common import db, events
from common.advisor import context, turn
from common.advisor.events import Finished
from common.auth import Identity
from common.config import Settings, settings
from common.conversations import FinishedTurn, Replay, TurnRequest
from common.knowledge import lexical
from common.knowledge.ingest import make_index
from common.knowledge.search import vector_text
from common.llm import call as llm
from common.llm.types import Stop, TextDelta, ToolCall, Usage
from common.memory import short_term
from common.memory.snapshots import MAX_PER_CONVERSATION, persist_snapshots
from common.text import canonical_hash
from common.tools import registry
from common.tools.types import ToolOutput
from common.turns.finish import finish_turn

MODEL = "script"
ENTRIES = 300  # of the knowledge base


class Scripted:
    """A model that asks for the tool first and then answers, at once."""

    def stream(self, request: Any, model: str) -> Iterator[Any]:
        usage = Usage(2000, 100)
        if request.messages[-1].results:
            words = script.answer(0)
            for start in range(0, len(words), 60):
                yield TextDelta(words[start : start + 60])
            yield Stop("end", model, "offline", usage)
        else:
            yield ToolCall(f"call-{uuid.uuid4().hex[:12]}", script.TOOL, dict(script.ARGUMENTS))
            yield Stop("tool_use", model, "offline", usage)

    def preload(self) -> None:
        pass


class Constant:
    """An embedder that knows one vector."""

    name, dimensions = MODEL, script.DIMENSIONS
    _vector = script.vector(999)

    def embed(self, texts: Any, *, kind: str) -> list[list[float]]:
        return [self._vector for _ in texts]


class Kept:
    """A publisher that keeps what was published."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def publish(self, sent: Any) -> None:
        self.events += sent

    def publish_rows(self, topic: str, rows: Any) -> None:
        pass


@contextlib.contextmanager
def free_of_cost(publisher: Kept) -> Iterator[None]:
    """Model, embedding, tool and Pub/Sub replaced by ones that take no time, and log lines thrown away."""
    tools = registry.tools()
    tool = dataclasses.replace(
        tools[script.TOOL],
        handler=lambda _context, _arguments: ToolOutput(script.tool_result(), datetime.now(UTC)),
    )
    with (
        mock.patch.object(llm, "_provider", _always(Scripted())),
        mock.patch.object(context, "embedder", _always(Constant())),
        mock.patch.object(turn, "embedder", _always(Constant())),
        mock.patch.object(events, "publisher", _always(publisher)),
        mock.patch.dict(tools, {script.TOOL: tool}),
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
    ):
        yield


def _always(value: Any) -> Callable[..., Any]:
    """What returns `value`; a `Mock` that does so takes some percent of a turn to note its calls."""
    return lambda *_: value


class Ours:
    """Turns of one customer. `more` is what neither the floor nor the peers have: documents of the brain, and a knowledge base of
    300 entries whose candidates are logged."""

    def __init__(self, url: str, superuser: sa.Engine, *, more: bool = False) -> None:
        os.environ["MEMBERINTEL_DATABASE_URL"] = url
        settings.cache_clear()
        db.engine.cache_clear()
        self._superuser = superuser
        self.config = Settings(database_url=url, requests_per_minute=1_000_000)
        self.publisher = Kept()
        self.user_id, self.tenant_id, self.site_id = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
        self.identity = Identity("benchmark", str(self.user_id), "owner@demo.example", datetime.now(UTC))
        self.conversation_id, self.asked, self._number = uuid.uuid4(), "", 0
        self._add_customer()
        if more:
            self._add_more()

    def prepare(self, turns: int) -> None:
        """A new conversation with `turns` turns in it."""
        self.conversation_id, session_id, now = uuid.uuid4(), uuid.uuid4(), datetime.now(UTC)
        messages, results = [], []
        for n, one in enumerate(script.earlier(turns)):
            answer_id = str(uuid.uuid4())
            for offset, (role, text, id) in enumerate(
                [("user", one.question, str(uuid.uuid4())), ("assistant", one.answer, answer_id)], start=1
            ):
                messages.append({"id": id, "role": role, "text": text, "position": 2 * n + offset})
            results.append({"message_id": answer_id, "hash": canonical_hash(n), "position": n})
        with self._superuser.begin() as connection:
            for statement in _CONVERSATION:
                connection.execute(
                    sa.text(statement),
                    {
                        "user": self.user_id,
                        "site": self.site_id,
                        "conversation": self.conversation_id,
                        "session": session_id,
                        "version": 2 * turns,
                        "now": now,
                        "messages": json.dumps(messages),
                        "results": json.dumps(results[-MAX_PER_CONVERSATION:]),
                        "tool": script.TOOL,
                        "input": json.dumps(script.ARGUMENTS),
                        "output": json.dumps(script.tool_result()),
                    },
                )
        self.rest()

    def turn(self, number: int, question: str = "") -> dict[str, Any]:
        """One turn; the finished answer."""
        request = TurnRequest(
            question or script.question(number), str(uuid.uuid4()), self.conversation_id, remember=True
        )
        begun = turn.begin(self.identity, request, config=self.config, now=datetime.now(UTC))
        assert not isinstance(begun, Replay)
        running, charge = begun
        *_, last = turn.run(running, charge, config=self.config, clock=_now, cancelled=lambda: False)
        assert isinstance(last, Finished)
        assert last.answer["status"] == "complete", last
        assert len(last.answer["tool_calls"]) == 1
        return last.answer

    def store(self, number: int) -> None:
        """What a turn reads and writes, by the same statements, without what it does in between: no routing, no prompt, no call of a
        model or a tool. This is what a store of conversations does."""
        request = TurnRequest(script.question(number), str(uuid.uuid4()), self.conversation_id, remember=True)
        begun = turn.begin(self.identity, request, config=self.config, now=_now())
        assert not isinstance(begun, Replay)
        running, charge = begun
        loaded = context.load_context(running, self.config, _now())
        assert len(loaded.found.memory.top) == script.RECALLED
        assert len(loaded.wrap_ups) == script.SUMMARIES
        now = _now()
        finished = FinishedTurn("complete", script.answer(number), {}, {}, [_tool_result(now)])

        def write(connection: sa.Connection) -> list[events.Event] | None:
            db.commit_with_next(connection)
            settled = [(charge, Stop("end", charge.model, charge.provider, Usage(2000, 100)))]
            quiet = timedelta(minutes=self.config.quiet_minutes)
            return finish_turn(connection, running, finished, settled=settled, now=now, quiet=quiet)

        made = db.in_user_transaction(running.account.user_id, write, local=db.ONE_PLAN)
        assert made
        short_term.keep_turn(running, loaded.history, finished.text, now)
        events.publish_now(made, self.publisher)

    def cold_turn(self, number: int) -> None:
        """A turn of a conversation that another process answered before: its history is read."""
        short_term._messages.drop(self.conversation_id)
        self.turn(number)

    def skill_turn(self, number: int) -> None:
        """A turn that a skill answers."""
        assert self.turn(number, script.SKILL_ASKED)["route"]["name"] != "advisor"

    def rest(self) -> None:
        """Forget what counts against the customer's plan: a benchmark has more turns a day than a customer."""
        with self._superuser.begin() as connection:
            connection.execute(sa.text("delete from usage_counters"))

    def consume(self) -> None:
        """What `persist_tool_results` does with the events of the turns so far."""
        waiting, self.publisher.events = self.publisher.events, []
        for event in waiting:
            if event.type == "tool-results":
                assert events.consume(event, persist_snapshots, now=datetime.now(UTC)) == "done"

    def _add_customer(self) -> None:
        with self._superuser.begin() as connection:
            for statement in _CUSTOMER:
                connection.execute(
                    sa.text(statement),
                    {
                        "user": self.user_id,
                        "subject": str(self.user_id),
                        "tenant": self.tenant_id,
                        "site": self.site_id,
                        "model": MODEL,
                        "memories": json.dumps(
                            [{"text": t, "vector": vector_text(v)} for t, v in script.memories()]
                        ),
                        "summaries": json.dumps([{"text": t} for t in script.summaries()]),
                    },
                )

    def _add_more(self) -> None:
        entries = [
            {
                "n": n,
                "text": script.words(50_000 + n, 80),
                "vector": vector_text(script.vector(1000 + n)),
            }
            for n in range(ENTRIES)
        ]
        words = {
            "soul": script.words(1, 150),
            "bible": script.words(2, 300),
            "heartbeat": script.words(3, 100),
        }
        with self._superuser.begin() as connection:
            connection.execute(
                sa.text(_DOCUMENTS),
                {"user": self.user_id, "site": self.site_id, "now": datetime.now(UTC), **words},
            )
            if not connection.scalar(
                sa.text("select 1 from brain_entries where tenant_id = 'global' limit 1")
            ):
                connection.execute(sa.text(_KNOWLEDGE), {"rows": json.dumps(entries), "model": MODEL})
                lexical.count_terms(connection)
        owner = db.make_engine(self.config, "owner")
        make_index(owner, Constant())
        owner.dispose()


def _now() -> datetime:
    return datetime.now(UTC)


def _tool_result(now: datetime) -> dict[str, Any]:
    return {
        "tool_use_id": f"call-{uuid.uuid4()}",
        "tool_name": script.TOOL,
        "tool_input": script.ARGUMENTS,
        "tool_output": script.tool_result(),
        "signals": {"plans": 9},
        "arguments_hash": canonical_hash(script.ARGUMENTS),
        "is_error": False,
        "position": 0,
        "observed_at": now,
        "created_at": now,
    }


_CUSTOMER = (
    "insert into tenants (id, name, tier) values (:tenant, 'bench', 'pro')",
    "insert into users (id, tenant_id, email, issuer, subject) values (:user, :tenant, 'b', 'benchmark', :subject)",
    """insert into sites (id, user_id, name, currency, timezone, data_as_of)
       values (:site, :user, 'Club', 'USD', 'Europe/Berlin', now())""",
    """insert into brain_entries (tenant_id, user_id, collection, document, title, content, content_hash, embedding, embedding_model,
           created_at, updated_at)
       select cast(:tenant as uuid), :user, 'memory', gen_random_uuid(), '', r.text, md5(r.text), cast(r.vector as vector), :model,
              now(), now()
       from jsonb_to_recordset(cast(:memories as jsonb)) as r(text text, vector text)""",
    """with old as (
           insert into conversations (id, user_id, site_id, title, created_at, last_turn_at)
           values (gen_random_uuid(), :user, :site, 'x', now(), now()) returning id),
       ended as (
           insert into sessions (id, user_id, conversation_id, started_at, last_activity_at, ended_at)
           select gen_random_uuid(), :user, old.id, now(), now(), now()
           from old, jsonb_array_elements(cast(:summaries as jsonb)) returning id)
       insert into session_logs (tenant_id, user_id, session_id, summary, decisions, open_items, new_context, next_session_note,
           trigger, model, input_tokens, output_tokens, created_at)
       select :tenant, :user, e.id, s.value->>'text', '[]', '[]', '[]', '', 'quiet', 'script', 1, 1, now()
       from (select id, row_number() over () as n from ended) e
       join jsonb_array_elements(cast(:summaries as jsonb)) with ordinality s on s.ordinality = e.n""",
)
_DOCUMENTS = """
insert into brain_documents (user_id, site_id, kind, content, author, updated_at)
values (:user, null, 'soul', :soul, 'user', :now), (:user, null, 'bible', :bible, 'user', :now),
       (:user, :site, 'heartbeat', :heartbeat, 'nightly', :now)
"""
_KNOWLEDGE = """
insert into brain_entries (tenant_id, collection, document, title, content, content_hash, embedding, embedding_model, created_at,
    updated_at)
select 'global', 'guides', 'd' || r.n / 4, 'Guide ' || r.n, r.text, r.n, cast(r.vector as vector), :model, now(), now()
from jsonb_to_recordset(cast(:rows as jsonb)) as r(n int, text text, vector text)
"""
_CONVERSATION = (
    """insert into conversations (id, user_id, site_id, title, version, created_at, last_turn_at)
       values (:conversation, :user, :site, 'x', :version, :now, :now)""",
    """insert into sessions (id, user_id, conversation_id, started_at, last_activity_at)
       values (:session, :user, :conversation, :now, :now)""",
    """insert into messages (id, user_id, conversation_id, session_id, role, text, status, position, created_at)
       select r.id, :user, :conversation, :session, r.role, r.text, 'complete', r.position, :now
       from jsonb_to_recordset(cast(:messages as jsonb)) as r(id uuid, role text, text text, position int)""",
    """insert into message_tool_results (user_id, message_id, conversation_id, site_id, tool_use_id, tool_name, tool_input, tool_output,
           signals, arguments_hash, position, observed_at, created_at)
       select :user, r.message_id, :conversation, :site, 'call', :tool, cast(:input as jsonb), cast(:output as jsonb),
              '{"plans": 9}', r.hash, r.position, :now, :now
       from jsonb_to_recordset(cast(:results as jsonb)) as r(message_id uuid, hash text, position int)""",
)

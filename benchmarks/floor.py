"""The floor of a turn: six bare statements through pg8000's `run()`, on tables of their own without policies.

They load the last 40 messages with their tool results, the 5 nearest memories and 3 summaries, and append two messages and a tool result.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pg8000.native

from benchmarks import script

_TABLES = """
create schema floor;
create table floor.messages (id uuid primary key, conversation_id uuid not null, position int not null, role text not null,
    text text not null, tool_name text, tool_input jsonb, created_at timestamptz not null default now(),
    unique (conversation_id, position));
create table floor.tool_results (id uuid primary key, message_id uuid not null references floor.messages, output jsonb not null,
    created_at timestamptz not null default now());
create index on floor.tool_results (message_id);
create table floor.memories (id uuid primary key, user_id uuid not null, text text not null, embedding vector not null);
create index on floor.memories (user_id);
create table floor.summaries (id uuid primary key, user_id uuid not null, text text not null,
    created_at timestamptz not null default now());
create index on floor.summaries (user_id)
"""
_HISTORY = """
select * from (
    select m.role, m.text, m.tool_name, m.tool_input, r.output, m.created_at, m.position
    from floor.messages m left join floor.tool_results r on r.message_id = m.id
    where m.conversation_id = cast(:conversation as uuid) order by m.position desc limit 40) as recent
order by position
"""
_MEMORIES = f"""
select text, 1 - (embedding <=> cast(:embedding as vector)) as score from floor.memories where user_id = cast(:user as uuid)
order by embedding <=> cast(:embedding as vector) limit {script.RECALLED}
"""
_SUMMARIES = f"""
select text, created_at from floor.summaries where user_id = cast(:user as uuid) order by created_at desc limit {script.SUMMARIES}
"""
_APPEND = """
with said as (
    insert into floor.messages (id, conversation_id, position, role, text, tool_name, tool_input)
    values (cast(:question_id as uuid), cast(:conversation as uuid), cast(:position as int), 'user', :question, null, null),
           (cast(:answer_id as uuid), cast(:conversation as uuid), cast(:position as int) + 1, 'assistant', :answer, :tool,
            cast(:input as jsonb)))
insert into floor.tool_results (id, message_id, output)
values (cast(:result_id as uuid), cast(:answer_id as uuid), cast(:output as jsonb))
"""


class Floor:
    """Turns of one user by bare SQL, on a connection of the superuser's."""

    def __init__(self, socket: Path, database: str) -> None:
        self._connection = pg8000.native.Connection("postgres", unix_sock=str(socket), database=database)
        self._user = str(uuid.uuid4())
        self._embedding = str(script.vector(999))
        self._conversation, self._position = "", 0
        run = self._connection.run
        if not run("select 1 from pg_namespace where nspname = 'floor'"):
            for statement in _TABLES.split(";"):
                run(statement)
        for text, vector in script.memories():
            run(
                "insert into floor.memories values (gen_random_uuid(), cast(:user as uuid), :text, cast(:vector as vector))",
                user=self._user,
                text=text,
                vector=str(vector),
            )
        for text in script.summaries():
            run(
                "insert into floor.summaries values (gen_random_uuid(), cast(:user as uuid), :text)",
                user=self._user,
                text=text,
            )

    def prepare(self, turns: int) -> None:
        """A new conversation with `turns` turns in it."""
        self._conversation, self._position = str(uuid.uuid4()), 0
        for turn in script.earlier(turns):
            self._append(turn.question, turn.answer)
        self._connection.run("analyze floor.messages, floor.tool_results")

    def turn(self, number: int) -> None:
        """One turn."""
        run = self._connection.run
        run("begin")
        run(_HISTORY, conversation=self._conversation)
        run(_MEMORIES, embedding=self._embedding, user=self._user)
        run(_SUMMARIES, user=self._user)
        self._append(script.question(number), script.answer(number))
        run("commit")

    def _append(self, question: str, answer: str) -> None:
        self._position += 2
        self._connection.run(
            _APPEND,
            question_id=str(uuid.uuid4()),
            answer_id=str(uuid.uuid4()),
            result_id=str(uuid.uuid4()),
            conversation=self._conversation,
            position=self._position,
            question=question,
            answer=answer,
            tool=script.TOOL,
            input=json.dumps(script.ARGUMENTS),
            output=json.dumps(script.tool_result()),
        )

    def close(self) -> None:
        self._connection.close()

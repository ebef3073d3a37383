"""Google ADK: DatabaseSessionService on asyncpg, its tables prepared at start. It has no memory service for PostgreSQL: memories and
summaries are read by the floor's SQL.

    python -m benchmarks.peers.with_adk URL [all | recent]

`recent` bounds what `get_session` reads to the last 40 messages, as the floor does.
"""

from __future__ import annotations

import asyncio
import sys
import uuid

import sqlalchemy as sa
from google.adk.events import Event
from google.adk.sessions import DatabaseSessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from benchmarks import script
from benchmarks.peers.peer import serve

APP = "bench"
_MEMORIES = sa.text(
    "select text, 1 - (embedding <=> cast(:embedding as vector)) from memories where user_id = :user"
    f" order by embedding <=> cast(:embedding as vector) limit {script.RECALLED}"
)
_SUMMARIES = sa.text(
    f"select text from summaries where user_id = :user order by created_at desc limit {script.SUMMARIES}"
)


class Adk:
    """Turns of one user, in a session for each conversation."""

    def __init__(self, url: str, reads: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._service = DatabaseSessionService(url)
        self._user, self._session = str(uuid.uuid4()), ""
        self._read = GetSessionConfig(num_recent_events=40) if reads == "recent" else None
        self._embedding = str(script.vector(999))
        self._loop.run_until_complete(self._set_up())

    async def _set_up(self) -> None:
        await self._service.prepare_tables()
        async with self._service.db_engine.begin() as connection:
            for statement in (
                "create table if not exists memories (user_id text, text text, embedding vector)",
                "create index if not exists memories_user on memories (user_id)",
                "create table if not exists summaries (user_id text, text text, created_at timestamptz default now())",
                "create index if not exists summaries_user on summaries (user_id)",
            ):
                await connection.execute(sa.text(statement))
            for text, vector in script.memories():
                await connection.execute(
                    sa.text(
                        "insert into memories values (:user, :text, cast(cast(:vector as text) as vector))"
                    ),
                    {"user": self._user, "text": text, "vector": str(vector)},
                )
            for text in script.summaries():
                await connection.execute(
                    sa.text("insert into summaries values (:user, :text)"), {"user": self._user, "text": text}
                )

    def prepare(self, turns: int) -> None:
        self._session = str(uuid.uuid4())
        self._loop.run_until_complete(self._prepare(turns))

    async def _prepare(self, turns: int) -> None:
        session = await self._service.create_session(
            app_name=APP, user_id=self._user, session_id=self._session
        )
        for n, turn in enumerate(script.earlier(turns)):
            for event in _events(turn.question, turn.answer, n):
                await self._service.append_event(session, event)

    def turn(self, number: int) -> None:
        self._loop.run_until_complete(self._turn(number))

    async def _turn(self, number: int) -> None:
        session = await self._service.get_session(
            app_name=APP, user_id=self._user, session_id=self._session, config=self._read
        )
        assert session is not None
        async with self._service.db_engine.connect() as connection:
            asked = {"user": self._user, "embedding": self._embedding}
            assert len((await connection.execute(_MEMORIES, asked)).all()) == script.RECALLED
            assert len((await connection.execute(_SUMMARIES, {"user": self._user})).all()) == script.SUMMARIES
        for event in _events(script.question(number), script.answer(number), number):
            await self._service.append_event(session, event)


def _events(question: str, answer: str, number: int) -> list[Event]:
    call = types.FunctionCall(id=f"call-{number}", name=script.TOOL, args=script.ARGUMENTS)
    result = types.FunctionResponse(id=f"call-{number}", name=script.TOOL, response=script.tool_result())
    said = [types.Part(text=answer), types.Part(function_call=call)]
    return [
        Event(author="user", content=types.Content(role="user", parts=[types.Part(text=question)])),
        Event(author="advisor", content=types.Content(role="model", parts=said)),
        Event(
            author="advisor",
            content=types.Content(role="user", parts=[types.Part(function_response=result)]),
        ),
    ]


if __name__ == "__main__":
    serve(Adk(sys.argv[1], sys.argv[2]))

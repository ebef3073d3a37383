"""A tool that outlives its time loses its connection, and gets no other."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import sqlalchemy as sa

from common import clock
from common.db import user_transaction
from common.llm.types import ToolCall
from common.tools import run as tool_run
from common.tools.run import run_tool
from common.tools.types import ToolContext
from tests.conftest import Database, add_person
from tests.functions.strange_tools import add_tool


def test_a_tool_whose_time_is_up_is_not_tried_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = add_person(database, "alice@x.example")
    engine = database.engine("app", 1)
    tries: list[ToolContext] = []

    def sleep(context: ToolContext) -> dict[str, Any]:
        tries.append(context)
        context.connection.execute(sa.text("select set_config('statement_timeout', '20000', true)"))
        context.connection.execute(sa.text("select pg_sleep(20)"))
        return {}

    name = add_tool(monkeypatch, sleep, timeout=0.5)
    done = run_tool(
        ToolCall("call-1", name, {}),
        allowed=frozenset({name}),
        open_transaction=lambda limits: user_transaction(person.user_id, source=engine, local=limits),
        user_id=person.user_id,
        site=None,
        conversation_id=uuid.uuid4(),
        now=clock.now(),
    )
    assert "did not answer within" in done.output["error"]
    tool_run._threads().shutdown()  # returns when the tool has
    tool_run._threads.cache_clear()
    assert len(tries) == 1
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]

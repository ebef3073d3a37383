"""LangGraph: a compiled graph of one node, with PostgresSaver and PostgresStore on one pool, as its documentation sets them up.

python -m benchmarks.peers.with_langgraph URL [async | exit]
"""

from __future__ import annotations

import json
import sys
import uuid
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.postgres import PostgresStore
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from benchmarks import script
from benchmarks.peers.peer import serve


class LangGraph:
    """Turns of one user, in a thread for each conversation."""

    def __init__(self, url: str, durability: str) -> None:
        options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        self._pool: Any = ConnectionPool(url, min_size=1, max_size=5, kwargs=options, open=True)
        saver = PostgresSaver(self._pool)
        saver.setup()
        store = PostgresStore(
            self._pool, index={"dims": script.DIMENSIONS, "embed": _embed, "fields": ["text"]}
        )
        store.setup()
        self._user, self._durability = str(uuid.uuid4()), durability
        for n, (text, _) in enumerate(script.memories()):
            store.put(("memories", self._user), str(n), {"text": text})
        for n, text in enumerate(script.summaries()):
            store.put(("summaries", self._user), str(n), {"text": text}, index=False)
        graph = StateGraph(MessagesState)
        graph.add_node("advisor", self._advisor)
        graph.add_edge(START, "advisor")
        graph.add_edge("advisor", END)
        self._graph = graph.compile(checkpointer=saver, store=store)
        self._thread: Any = {}
        self._number = 0

    def prepare(self, turns: int) -> None:
        self._thread = {"configurable": {"thread_id": str(uuid.uuid4())}}
        said: list[AnyMessage] = []
        for n, turn in enumerate(script.earlier(turns)):
            said += [HumanMessage(turn.question), *_answer(turn.answer, n, turn.tool)]
        self._graph.update_state(self._thread, {"messages": said}, as_node="advisor")

    def turn(self, number: int) -> None:
        self._number = number
        asked = {"messages": [HumanMessage(script.question(number))]}
        self._graph.invoke(asked, self._thread, durability=self._durability)

    def _advisor(self, state: MessagesState, runtime: Runtime) -> dict[str, Any]:
        store = runtime.store
        assert store is not None
        asked = str(state["messages"][-1].content)
        assert (
            len(store.search(("memories", self._user), query=asked, limit=script.RECALLED)) == script.RECALLED
        )
        assert len(store.search(("summaries", self._user), limit=script.SUMMARIES)) == script.SUMMARIES
        return {"messages": _answer(script.answer(self._number), self._number, tool=True)}


def _answer(text: str, number: int, tool: bool) -> list[AnyMessage]:
    if not tool:
        return [AIMessage(text)]
    call = {"id": f"call-{number}", "name": script.TOOL, "args": script.ARGUMENTS}
    return [
        AIMessage(text, tool_calls=[call]),
        ToolMessage(json.dumps(script.tool_result()), tool_call_id=call["id"]),
    ]


def _embed(texts: Any) -> list[list[float]]:
    return [script.vector(999) for _ in texts]


if __name__ == "__main__":
    serve(LangGraph(sys.argv[1], sys.argv[2]))

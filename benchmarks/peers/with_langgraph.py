"""LangGraph with PostgresSaver and PostgresStore on one pool, as its documentation sets them up.

As a graph of one node it stores what a turn says, and no more. As an agent it does what a turn of ours does: its model asks for a tool, a
tool node runs it, and the model answers; each is a step of the graph.

    python -m benchmarks.peers.with_langgraph URL async|exit node|agent
"""

from __future__ import annotations

import json
import sys
import uuid
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.runtime import Runtime
from langgraph.store.postgres import PostgresStore
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from benchmarks import script
from benchmarks.peers.peer import serve


class LangGraph:
    """Turns of one user, in a thread for each conversation."""

    def __init__(self, url: str, durability: str, shape: str) -> None:
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
        graph.add_edge(START, "advisor")
        if shape == "agent":
            graph.add_node("advisor", self._model)
            graph.add_node("tools", ToolNode([StructuredTool.from_function(_tool, name=script.TOOL)]))
            graph.add_conditional_edges("advisor", tools_condition)
            graph.add_edge("tools", "advisor")
        else:
            graph.add_node("advisor", self._advisor)
            graph.add_edge("advisor", END)
        self._graph = graph.compile(checkpointer=saver, store=store)
        self._thread: Any = {}
        self._number = 0

    def prepare(self, turns: int) -> None:
        self._thread = {"configurable": {"thread_id": str(uuid.uuid4())}}
        said: list[AnyMessage] = []
        for turn in script.earlier(turns):
            said += [HumanMessage(turn.question), *_answer(turn.answer)]
        self._graph.update_state(self._thread, {"messages": said}, as_node="advisor")

    def turn(self, number: int) -> None:
        self._number = number
        asked = {"messages": [HumanMessage(script.question(number))]}
        self._graph.invoke(asked, self._thread, durability=self._durability)

    def _advisor(self, state: MessagesState, runtime: Runtime) -> dict[str, Any]:
        self._recall(state, runtime)
        return {"messages": _answer(script.answer(self._number))}

    def _model(self, state: MessagesState, runtime: Runtime) -> dict[str, Any]:
        if isinstance(state["messages"][-1], ToolMessage):
            return {"messages": [AIMessage(script.answer(self._number))]}
        self._recall(state, runtime)
        return {"messages": [_call()]}

    def _recall(self, state: MessagesState, runtime: Runtime) -> None:
        store = runtime.store
        assert store is not None
        asked = str(state["messages"][-1].content)
        assert (
            len(store.search(("memories", self._user), query=asked, limit=script.RECALLED)) == script.RECALLED
        )
        assert len(store.search(("summaries", self._user), limit=script.SUMMARIES)) == script.SUMMARIES


def _answer(text: str) -> list[AnyMessage]:
    asked = _call(text)
    return [asked, ToolMessage(json.dumps(script.tool_result()), tool_call_id=asked.tool_calls[0]["id"])]


def _call(text: str = "") -> AIMessage:
    call = {"id": f"call-{uuid.uuid4()}", "name": script.TOOL, "args": script.ARGUMENTS}
    return AIMessage(text, tool_calls=[call])


def _tool(target: str, filters: dict[str, str], limit: int) -> str:
    """Rows of the site's data."""
    return json.dumps(script.tool_result())


def _embed(texts: Any) -> list[list[float]]:
    return [script.vector(999) for _ in texts]


if __name__ == "__main__":
    serve(LangGraph(*sys.argv[1:]))

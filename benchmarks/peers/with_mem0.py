"""Mem0 on pgvector, `infer=False`: what is said is added as it is, found by vector, and listed. Telemetry is off; an index on the user,
which Mem0 does not make, is added.

    python -m benchmarks.peers.with_mem0 URL
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

os.environ["MEM0_TELEMETRY"] = "False"
os.environ.setdefault("OPENAI_API_KEY", "none is used")

import psycopg
from mem0 import Memory
from mem0.embeddings.base import EmbeddingBase

from benchmarks import script
from benchmarks.peers.peer import serve


class Constant(EmbeddingBase):
    """An embedder that knows one vector."""

    def __init__(self) -> None:
        self._vector = script.vector(999)

    def embed(self, text: str, memory_action: Any = None) -> list[float]:
        return self._vector

    def embed_batch(self, texts: list[str], memory_action: Any = None) -> list[list[float]]:
        return [self._vector for _ in texts]


class Mem0:
    """Turns of one user, in a run for each conversation."""

    def __init__(self, url: str) -> None:
        store = {
            "connection_string": url,
            "embedding_model_dims": script.DIMENSIONS,
            "collection_name": "mem0",
        }
        self._memory = Memory.from_config(
            {
                "vector_store": {"provider": "pgvector", "config": store},
                "history_db_path": str(Path(tempfile.mkdtemp()) / "history.db"),
            }
        )
        self._memory.embedding_model = Constant()
        self._user, self._run = str(uuid.uuid4()), ""
        for text, _ in script.memories():
            self._memory.add(text, user_id=self._user, agent_id="memories", infer=False)
        for text in script.summaries():
            self._memory.add(text, user_id=self._user, agent_id="summaries", infer=False)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("create index if not exists mem0_user on mem0 ((payload->>'user_id'))")

    def prepare(self, turns: int) -> None:
        self._run = str(uuid.uuid4())
        for turn in script.earlier(turns):
            self._say(turn.question, turn.answer)

    def turn(self, number: int) -> None:
        mine = {"user_id": self._user}
        found = self._memory.search(
            script.question(number),
            filters={**mine, "agent_id": "memories"},
            top_k=script.RECALLED,
            threshold=0.0,
        )
        assert len(found["results"]) == script.RECALLED
        assert self._memory.get_all(filters={**mine, "run_id": self._run}, top_k=40)["results"]
        summaries = self._memory.get_all(filters={**mine, "agent_id": "summaries"}, top_k=script.SUMMARIES)
        assert len(summaries["results"]) == script.SUMMARIES
        self._say(script.question(number), script.answer(number))

    def _say(self, question: str, answer: str) -> None:
        said = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        self._memory.add(said, user_id=self._user, run_id=self._run, infer=False)
        result = {"role": "assistant", "content": json.dumps(script.tool_result()), "name": script.TOOL}
        self._memory.add([result], user_id=self._user, run_id=self._run, infer=False)


if __name__ == "__main__":
    serve(Mem0(sys.argv[1]))

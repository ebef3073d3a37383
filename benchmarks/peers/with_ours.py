"""Ours, in a process of its own like the peers: an Advisor's turn, and then what the outbox's consumer writes of it.

python -m benchmarks.peers.with_ours URL SUPERUSER_URL
"""

from __future__ import annotations

import sys

import sqlalchemy as sa

from benchmarks.ours import Ours, free_of_cost
from benchmarks.peers.peer import serve


class OursWithConsumer(Ours):
    """Turns with the work of `persist_tool_results` after each."""

    def turn(self, number: int, question: str = "") -> dict[str, object]:
        answer = super().turn(number, question)
        self.consume()
        return answer


if __name__ == "__main__":
    ours = OursWithConsumer(sys.argv[1], sa.create_engine(sys.argv[2]))
    with free_of_cost(ours.publisher):
        serve(ours)

"""Ours, in a process of its own like the peers: an Advisor's turn, and as "whole" also what the outbox's consumer writes of it.

python -m benchmarks.peers.with_ours URL SUPERUSER_URL turn|whole
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
    url, superuser, how = sys.argv[1:]
    ours = {"turn": Ours, "whole": OursWithConsumer}[how](url, sa.create_engine(superuser))
    with free_of_cost(ours.publisher):
        serve(ours, rest=ours.consume)

"""Ours, in a process of its own like the peers: an Advisor's turn, or only what it stores; each also with what the outbox's consumer
writes of it.

    python -m benchmarks.peers.with_ours URL SUPERUSER_URL turn|store [consumed]
"""

from __future__ import annotations

import sys
from typing import Any

import sqlalchemy as sa

from benchmarks.ours import Ours, free_of_cost
from benchmarks.peers.peer import serve


class Played:
    """Turns of ours: of a `kind`, and `consumed` or not."""

    def __init__(self, ours: Ours, kind: str, consumed: bool) -> None:
        self._ours, self._consumed = ours, consumed
        self._play: Any = {"turn": ours.turn, "store": ours.store}[kind]

    def prepare(self, turns: int) -> None:
        self._ours.prepare(turns)

    def turn(self, number: int) -> None:
        self._play(number)
        if self._consumed:
            self._ours.consume()


if __name__ == "__main__":
    url, superuser, kind, *more = sys.argv[1:]
    ours = Ours(url, sa.create_engine(superuser))
    with free_of_cost(ours.publisher):
        serve(Played(ours, kind, more == ["consumed"]), rest=ours.consume)

"""A peer in a process of its own: it prepares conversations and plays turns when it is told to on standard input, one JSON object a line.

Standard library only, for each peer runs in its own virtual environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Protocol


class Peer(Protocol):
    """What a peer can do."""

    def prepare(self, turns: int) -> None:
        """Begin a conversation that has `turns` turns already."""

    def turn(self, number: int) -> None:
        """Play one turn in it."""


def serve(peer: Peer, rest: Callable[[], object] = lambda: None) -> None:
    """Do what comes in, until there is no more: {"prepare": n} or {"turns": [numbers]}, answered by the seconds of wall time and of CPU
    of each turn, or {"rest": true} for what `rest` does between turns and no measurement covers."""
    answers = os.fdopen(os.dup(1), "w")
    sys.stdout = sys.stderr  # what a library prints is no answer
    print(json.dumps({}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        wall, cpu = [], []
        if "prepare" in asked:
            peer.prepare(asked["prepare"])
        if "rest" in asked:
            rest()
        for number in asked.get("turns", ()):
            started, used = time.perf_counter(), time.process_time()
            peer.turn(number)
            wall.append(time.perf_counter() - started)
            cpu.append(time.process_time() - used)
        print(json.dumps({"wall": wall, "cpu": cpu}), file=answers, flush=True)

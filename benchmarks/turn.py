"""A warm turn beside the floor: time, CPU, statements and round trips.

    python -m benchmarks.turn [--rounds N] [--quick] [--json FILE]

Ours is what the chat function does in its process from the parsed request to the finished answer (`benchmarks/ours.py` says what that
includes); the floor is six bare statements (`benchmarks/floor.py`). They alternate, and each ratio is of one round. The model, the
embedding and the tool cost nothing; the database is on a Unix socket of the same machine, with fsync on. *Equal data*: 15 memories, 3
summaries and the history, as the floor has them. *Everything*: a SOUL, a BIBLE, a HEARTBEAT and a knowledge base of 300 entries too,
which is searched and whose candidates are logged. A *cold* turn reads its history, since another process answered before; a *skill* turn
asks a tool and knows nothing else.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benchmarks import report
from benchmarks.floor import Floor
from benchmarks.ours import Ours, free_of_cost
from benchmarks.report import Row
from benchmarks.stage import Stage, is_control, stage
from benchmarks.wire import counted
from local.postgres import DATABASE

LENGTHS = (10, 100, 500)
WARM_UP, TURNS = 12, 10  # turns of each kind, before the rounds and in each
MOST = "≤ 2.5"


@dataclass
class Times:
    """The medians of the rounds, in milliseconds."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def over(self, floor: Times) -> tuple[list[float], list[float]]:
        """The ratios to the floor, round by round: what disturbs the machine disturbs both."""
        wall, cpu = zip(self.wall, floor.wall, strict=True), zip(self.cpu, floor.cpu, strict=True)
        return [ours / bare for ours, bare in wall], [ours / bare for ours, bare in cpu]


def run(rounds: int, lengths: tuple[int, ...]) -> Iterator[Row]:
    """All figures."""
    with stage() as place:
        floor = Floor(place.server.socket, DATABASE)
        # What a knowledge base has is found for every customer: the turns without one come first.
        for data, more in (("equal data", False), ("everything", True)):
            ours = Ours(place.server.url(), place.superuser, more=more)
            with free_of_cost(ours.publisher):
                warm = {}
                for turns in lengths:
                    measured = beside(place, floor, ours, turns, rounds)
                    warm[turns] = measured["Advisor"]
                    yield from _rows(f"{turns} earlier turns, {data}", measured, wanted=not more)
                if len(warm) > 1:
                    shortest, longest = warm[lengths[0]].wall, warm[lengths[-1]].wall
                    grown = statistics.median(longest) / statistics.median(shortest)
                    yield Row(
                        f"Advisor turn, {data}: {lengths[-1]} earlier turns over {lengths[0]}", grown, "x"
                    )
        floor.close()
        yield from _counts(place)


def beside(place: Stage, floor: Floor, ours: Ours, turns: int, rounds: int) -> dict[str, Times]:
    """The floor's turns and ours, by turns, in a conversation of this length."""
    floor.prepare(turns)
    ours.prepare(turns)
    kinds: dict[str, Callable[[int], object]] = {
        "floor": floor.turn,
        "Advisor": ours.turn,
        "Advisor, cold": ours.cold_turn,
        "skill": ours.skill_turn,
    }
    _play(kinds, ours, WARM_UP)
    place.settle()
    _play(kinds, ours, 2)  # all is planned anew
    found = {kind: Times() for kind in kinds}
    for _ in range(rounds):
        for kind, pairs in _play(kinds, ours, TURNS).items():
            wall, cpu = zip(*pairs, strict=True)
            found[kind].wall.append(1000 * statistics.median(wall))
            found[kind].cpu.append(1000 * statistics.median(cpu))
    return found


def _play(
    kinds: dict[str, Callable[[int], object]], ours: Ours, turns: int
) -> dict[str, list[tuple[float, float]]]:
    """Seconds of wall time and of this process's CPU."""
    took: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for number in range(turns):
        for kind, play in kinds.items():
            started, used = time.perf_counter(), time.process_time()
            play(number)
            took[kind].append((time.perf_counter() - started, time.process_time() - used))
        ours.consume()  # as the outbox's consumer would meanwhile
    ours.rest()
    return took


def _rows(what: str, measured: dict[str, Times], *, wanted: bool) -> Iterator[Row]:
    for kind, times in measured.items():
        yield report.of(f"{kind}, {what}: time", times.wall, "ms")
        yield report.of(f"{kind}, {what}: client CPU", times.cpu, "ms")
        if kind != "floor":
            most = MOST if wanted and kind == "Advisor" else ""
            wall, cpu = times.over(measured["floor"])
            yield report.of(f"{kind}, {what}: time over the floor's", wall, "x", most)
            yield report.of(f"{kind}, {what}: client CPU over the floor's", cpu, "x", most)


def _counts(place: Stage) -> Iterator[Row]:
    """Statements by the server's log, and round trips on the wire, of one warm turn of each kind, with everything."""
    most = {"Advisor": 8, "skill": 5}
    with counted(place.server.socket) as (socket, wire), place.logged() as statements:
        url = place.server.url().replace(str(place.server.socket), str(socket))
        ours = Ours(url, place.superuser, more=True)
        ours.prepare(10)
        with free_of_cost(ours.publisher):
            for kind, play in {"Advisor": ours.turn, "skill": ours.skill_turn}.items():
                for number in range(3):
                    wire.round_trips, _ = 0, statements()
                    play(number)
                sent = [s for s in statements() if not is_control(s)]
                yield Row(f"{kind} turn: statements", len(sent), "", f"≤ {most[kind]}")
                yield Row(f"{kind} turn: round trips", wire.round_trips, "", "≤ 30")


def main(argv: list[str] | None = None) -> None:
    """Measure, and publish the rows."""
    arguments = report.parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=10)
    arguments.add_argument("--quick", action="store_true", help="two rounds of the shortest conversation")
    asked = arguments.parse_args(argv)
    rows = list(run(2, LENGTHS[:1]) if asked.quick else run(asked.rounds, LENGTHS))
    report.publish(rows, asked.json)


if __name__ == "__main__":
    main()

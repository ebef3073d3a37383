"""A warm turn beside the floor: time, CPU, statements and round trips.

    python -m benchmarks.turn [--quick] [--json FILE]

Ours is what the chat function does in its process from the parsed request to the finished answer (`benchmarks/ours.py` says what that
includes); the floor is six bare statements (`benchmarks/floor.py`). They alternate within one run. The model, the embedding and the
tool cost nothing; the database is on a Unix socket of the same machine, with fsync on. A *cold* turn reads its history, since another
process answered before; a *skill* turn asks a tool and knows nothing else.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.floor import Floor
from benchmarks.ours import Ours, free_of_cost
from benchmarks.stage import Stage, is_control, stage
from benchmarks.wire import counted
from local.postgres import DATABASE

WARM_UP = 12
LENGTHS = (10, 100, 500)


def run(rounds: int, lengths: tuple[int, ...]) -> dict[str, Any]:
    """All figures."""
    with stage() as place:
        floor, ours = Floor(place.server.socket, DATABASE), Ours(place.server.url(), place.superuser)
        with free_of_cost(ours.publisher):
            figures = {f"{turns} earlier turns": _beside(floor, ours, turns, rounds) for turns in lengths}
            figures["counts"] = _counts(place)
        floor.close()
    return figures


def _beside(floor: Floor, ours: Ours, turns: int, rounds: int) -> dict[str, Any]:
    """The floor and our turns in a conversation of this length, in turn; medians, quartiles and ratios."""
    floor.prepare(turns)
    ours.prepare(turns)
    kinds: dict[str, Callable[[int], object]] = {
        "floor": floor.turn,
        "advisor": ours.turn,
        "advisor, cold": ours.cold_turn,
        "skill": ours.skill_turn,
    }
    took: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for number in range(WARM_UP + rounds):
        for kind, play in kinds.items():
            started, used = time.perf_counter(), time.process_time()
            play(number)
            took[kind].append((time.perf_counter() - started, time.process_time() - used))
        ours.rest()
    return {kind: _figures(pairs[WARM_UP:], took["floor"][WARM_UP:]) for kind, pairs in took.items()}


def _figures(pairs: list[tuple[float, float]], floor: list[tuple[float, float]]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, part in (("wall", 0), ("cpu", 1)):
        times = [1000 * pair[part] for pair in pairs]
        low, middle, high = statistics.quantiles(times, n=4)
        figures[f"{name}_ms"] = round(middle, 2)
        figures[f"{name}_quartiles_ms"] = [round(low, 2), round(high, 2)]
        # Of each round by itself: what disturbs the machine disturbs both.
        figures[f"{name}_ratio"] = round(
            statistics.median(pair[part] / other[part] for pair, other in zip(pairs, floor, strict=True)), 2
        )
    return figures


def _counts(place: Stage) -> dict[str, Any]:
    """Statements by the server's log, and round trips on the wire, of one warm turn of each kind."""
    figures: dict[str, Any] = {}
    with counted(place.server.socket) as (socket, wire), place.logged() as statements:
        ours = Ours(place.server.url().replace(str(place.server.socket), str(socket)), place.superuser)
        ours.prepare(10)
        with free_of_cost(ours.publisher):
            for kind, play in {"advisor": ours.turn, "skill": ours.skill_turn}.items():
                for number in range(3):
                    wire.round_trips, _ = 0, statements()
                    play(number)
                sent = statements()
                figures[kind] = {
                    "statements": sum(not is_control(s) for s in sent),
                    "with transaction control": len(sent),
                    "round trips": wire.round_trips,
                }
    return figures


def table(figures: dict[str, Any]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| earlier turns | | wall ms (quartiles) | ratio | client CPU ms (quartiles) | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for length, kinds in figures.items():
        if length == "counts":
            continue
        for kind, f in kinds.items():
            wall, cpu = (
                f"{f[n + '_ms']} ({f[n + '_quartiles_ms'][0]}–{f[n + '_quartiles_ms'][1]})"
                for n in ("wall", "cpu")
            )
            lines.append(
                f"| {length.split()[0]} | {kind} | {wall} | {f['wall_ratio']} | {cpu} | {f['cpu_ratio']} |"
            )
    lines += ["", "| | statements | with transaction control | round trips |", "|---|---|---|---|"]
    for kind, f in figures["counts"].items():
        lines.append(f"| {kind} | {f['statements']} | {f['with transaction control']} | {f['round trips']} |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rounds, and only the shortest conversation")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    figures = run(20, LENGTHS[:1]) if arguments.quick else run(100, LENGTHS)
    print(table(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()

"""Many streams on one instance, and what a thousand turns leave behind.

    python -m benchmarks.streams [--quick] [--streams 80] [--over 10] [--alone 20] [--turns 1000]

The instance is gunicorn as functions-framework runs it in production, with production's threads and pool; the model is a stub that takes
400 ms to its first token and keeps each answer open until the last stream has come, so that all of them run at once.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import chat_server, model_stub, report
from benchmarks.chat_server import Answered, Instance, Place
from benchmarks.report import Row

FIRST_MS, DELTAS = 400, 50
AT_ONCE = 8  # of the thousand
# Of as many turns at once: the server's pool, that of the tools, and what else there is. A pool makes its threads as they are first needed.
MOST_THREADS = 2 * AT_ONCE + 4
LEFT_BEHIND = """
    select count(*) filter (where state <> 'idle') as busy, count(*) as connections,
           (select count(*) from pg_locks where locktype = 'advisory') as locks
    from pg_stat_activity where datname = current_database() and usename = 'memberintel_app'
"""


async def all_at_once(instance: Instance, tokens: list[str], over: float) -> list[Answered]:
    """One turn of each customer, their beginnings spread evenly over `over` seconds."""
    waits = [over * n / len(tokens) for n in range(len(tokens))]
    return await asyncio.gather(
        *(chat_server.ask(instance, token, wait=wait) for token, wait in zip(tokens, waits, strict=True))
    )


async def one_by_one(instance: Instance, tokens: list[str], turns: int) -> list[Answered]:
    """Turns one after the other."""
    return [await chat_server.ask(instance, tokens[n % len(tokens)]) for n in range(turns)]


def measure_streams(place: Place, slow: str, over: float, alone_turns: int) -> list[Row]:
    """How one stream fares alone, then among one of each customer's, whose model is at the address `slow`."""
    with chat_server.instance(place) as instance:
        asyncio.run(one_by_one(instance, place.tokens[:5], 5))
        one = asyncio.run(one_by_one(instance, place.tokens, alone_turns))
    with chat_server.instance(place, slow) as instance:
        asyncio.run(all_at_once(instance, place.tokens[:5], 0))
        many = asyncio.run(all_at_once(instance, place.tokens, over))
    count = len(place.tokens)
    assert all(answered.complete for answered in one)
    single = statistics.median(answered.first for answered in one)
    firsts = sorted(answered.first for answered in many)
    p95 = statistics.quantiles(firsts, n=20)[-1]
    finished = sum(answered.complete for answered in many)
    return [
        Row(f"of {count} concurrent streams, finished", finished, "", f"≥ {count}"),
        Row("one stream's time to its first token", 1000 * single, "ms"),
        Row(
            f"p95 to the first token among {count} concurrent streams",
            1000 * p95,
            "ms",
            spread=(1000 * firsts[0], 1000 * firsts[-1]),
        ),
        Row(f"p95 to the first token of {count} streams, against one stream's", p95 / single, "×", "≤ 1.5"),
    ]


@dataclass(frozen=True)
class State:
    """What an instance holds between turns."""

    megabytes: float
    threads: int
    connections: int
    busy: int
    locks: int


def look(instance: Instance, place: Place) -> State:
    """The instance's state a moment after its last answer."""
    time.sleep(1)
    status = Path(f"/proc/{instance.worker}/status").read_text()
    numbers = {name: int(value) for name, value in re.findall(r"(VmRSS|Threads):\s+(\d+)", status)}
    (row,) = place.database.rows(LEFT_BEHIND)
    return State(numbers["VmRSS"] / 1024, numbers["Threads"], row.connections, row.busy, row.locks)


async def talk(instance: Instance, tokens: list[str], turns: int) -> None:
    """`turns` turns, one after the other with each of the customers, ten to a conversation."""

    async def converse(token: str, share: int) -> None:
        conversation = None
        for n in range(share):
            answered = await chat_server.ask(instance, token, conversation=conversation if n % 10 else None)
            assert answered.complete
            conversation = answered.conversation

    await asyncio.gather(*(converse(token, turns // len(tokens)) for token in tokens))


def measure_leaks(place: Place, turns: int) -> list[Row]:
    """What an instance holds after a fifth of `turns`, and after all of them."""
    with chat_server.instance(place) as instance:
        asyncio.run(talk(instance, place.tokens[:AT_ONCE], turns // 5))
        before = look(instance, place)
        asyncio.run(talk(instance, place.tokens[:AT_ONCE], turns - turns // 5))
        after = look(instance, place)
    print(f"after {turns // 5} turns: {before}\nafter {turns} turns: {after}")
    left = (
        max(after.threads - max(before.threads, MOST_THREADS), 0)
        + after.busy
        + after.locks
        + max(after.connections - chat_server.POOL, 0)
    )
    return [
        Row(f"memory after {turns} turns", after.megabytes, "MB"),
        Row(
            f"memory after {turns} turns, against after {turns // 5}",
            after.megabytes / before.megabytes,
            "×",
            "≤ 1.05",
        ),
        Row(
            f"left behind after {turns} turns: threads, locks, transactions, connections over the pool",
            left,
            "",
            "≤ 0",
        ),
    ]


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write for the runner."""
    arguments = report.parser(__doc__)
    arguments.add_argument("--quick", action="store_true", help="a quarter of the streams, few turns")
    arguments.add_argument("--streams", type=int, help="default: 80")
    arguments.add_argument("--over", type=float, help="seconds over which they arrive; default: 10")
    arguments.add_argument("--alone", type=int, help="turns of one stream alone; default: 20")
    arguments.add_argument("--turns", type=int, help="default: 1000")
    asked = arguments.parse_args(argv)
    streams, over, alone, turns = (20, 2.5, 5, 200) if asked.quick else (80, 10.0, 20, 1000)
    streams, over, turns = asked.streams or streams, asked.over or over, asked.turns or turns
    with (
        model_stub.running(FIRST_MS, 0, DELTAS) as quick,
        model_stub.running(FIRST_MS, over + 1, DELTAS) as slow,
        chat_server.place(quick, streams) as place,
    ):
        rows = measure_streams(place, slow, over, asked.alone or alone)
    with model_stub.running(0, 0, DELTAS) as at_once, chat_server.place(at_once, AT_ONCE) as place:
        rows += measure_leaks(place, turns)
    report.publish(rows, asked.json)


if __name__ == "__main__":
    main()

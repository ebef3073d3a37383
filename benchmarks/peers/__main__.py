"""A turn beside the peers: LangGraph, Google ADK and Mem0, each in its own process and virtual environment, on the same PostgreSQL.

    make bench-peers        (or: python -m benchmarks.peers [--quick] [--venvs DIR] [--json FILE])

Each loads 10, 100 or 500 turns of history with tool results, the five nearest memories and three summaries, and appends two messages and
a tool result of 1 KB. Models and embeddings cost nothing. Ours does what a turn of the Advisor does (`benchmarks/ours.py`), which is
more. It has two rows: the turn, for which a customer waits, and the same with the work of the outbox's consumer, which comes after it. Time
is compared with both; CPU and bytes, which somebody pays for in any case, with the second. Rounds are shuffled, and each ratio is of one
round: what slows the machine for a while slows all. CPU is the client's and the server's; bytes are those of the write-ahead log;
statements are counted from the server's log in a run of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.stage import Stage, is_control, stage

ROOT = Path(__file__).parents[2]
LENGTHS = (10, 100, 500)
WARM_UP = 12  # as in `benchmarks.turn`


@dataclass(frozen=True)
class Kind:
    """A way to keep a turn. `venv` is the folder of its virtual environment, this one's if empty; `database` is shared by its variants."""

    name: str
    module: str
    venv: str
    database: str
    arguments: tuple[str, ...]


STORED, TURN = "MemberIntel, what a turn stores", "MemberIntel, the turn"
CONSUMED = " and consumes"
KINDS = (
    Kind("floor: pg8000 `run()`", "with_floor", "", "peer_floor", ("{socket}", "{database}")),
    *(
        Kind(name + more, "with_ours", "", "memberintel", ("{url}", "{url}", what, *consumed))
        for name, what in ((STORED, "store"), (TURN, "turn"))
        for more, consumed in (("", ()), (CONSUMED, ("consumed",)))
    ),
    *(
        Kind(name, "with_langgraph", "langgraph", "peer_langgraph", ("{libpq}", durability, shape))
        for name, durability, shape in (
            ("LangGraph, one node", "async", "node"),
            ('LangGraph, one node, `durability="exit"`', "exit", "node"),
            ("LangGraph, agent", "async", "agent"),
            ('LangGraph, agent, `durability="exit"`', "exit", "agent"),
        )
    ),
    Kind("ADK", "with_adk", "adk", "peer_adk", ("{asyncpg}", "all")),
    Kind("ADK, last 40 events", "with_adk", "adk", "peer_adk", ("{asyncpg}", "recent")),
    Kind("Mem0, `infer=False`", "with_mem0", "mem0", "peer_mem0", ("{libpq}",)),
)


class Process:
    """A running peer."""

    def __init__(self, kind: Kind, place: Stage, venvs: Path) -> None:
        server = place.server
        values = {
            "socket": str(server.socket),
            "database": kind.database,
            "url": server.url(kind.database),
            "libpq": server.libpq_url(kind.database),
            "asyncpg": server.libpq_url(kind.database).replace("postgresql:", "postgresql+asyncpg:"),
        }
        python = str(venvs / kind.venv / "bin" / "python") if kind.venv else sys.executable
        command = [
            python,
            "-m",
            f"benchmarks.peers.{kind.module}",
            *(a.format(**values) for a in kind.arguments),
        ]
        self._errors = (server.folder / f"{kind.module}.log").open("ab")
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._answer()

    def prepare(self, turns: int) -> None:
        """Begin a conversation of this length."""
        self._ask({"prepare": turns})

    def play(self, count: int, first: int) -> dict[str, list[float]]:
        """Seconds of wall time and client CPU of `count` turns."""
        return self._ask({"turns": list(range(first, first + count))})

    def rest(self) -> None:
        """Do what it does between turns, outside of any measurement."""
        self._ask({"rest": True})

    def stop(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)
        self._errors.close()

    def _ask(self, question: dict[str, Any]) -> dict[str, list[float]]:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, list[float]]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"A peer failed:\n{Path(self._errors.name).read_text()[-2000:]}")
        return json.loads(line)  # type: ignore[no-any-return]


@dataclass
class Measured:
    """The turns of one kind at one length: milliseconds, and bytes by turn."""

    wall: list[float] = field(default_factory=list)
    client: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)
    round_wall: list[float] = field(default_factory=list)
    round_cpu: list[float] = field(default_factory=list)

    def add(self, played: dict[str, list[float]], server_seconds: float, written: int) -> None:
        count = len(played["wall"])
        self.round_wall.append(1000 * statistics.median(played["wall"]))
        self.round_cpu.append(1000 * (sum(played["cpu"]) + server_seconds) / count)
        self.wall += [1000 * s for s in played["wall"]]
        self.client += [1000 * s for s in played["cpu"]]
        self.server.append(1000 * server_seconds / count)
        self.written.append(written / count)

    def figures(self) -> dict[str, Any]:
        low, _, high = statistics.quantiles(self.wall, n=4)
        return {
            "wall_ms": round(statistics.median(self.wall), 1),
            "wall_quartiles_ms": [round(low, 1), round(high, 1)],
            "client_cpu_ms": round(statistics.median(self.client), 1),
            "server_cpu_ms": round(statistics.median(self.server), 1),
            "written_bytes": round(statistics.median(self.written)),
            "round_wall_ms": self.round_wall,
            "round_cpu_ms": self.round_cpu,
        }


@contextlib.contextmanager
def processes(place: Stage, venvs: Path, kinds: tuple[Kind, ...]) -> Iterator[dict[str, Process]]:
    """One process of each kind."""
    running: dict[str, Process] = {}
    try:
        for kind in kinds:
            running[kind.name] = Process(kind, place, venvs)
        yield running
    finally:
        for process in running.values():
            process.stop()


def measure(place: Stage, venvs: Path, lengths: tuple[int, ...], rounds: int, turns: int) -> dict[str, Any]:
    """The figures of each length and kind."""
    order = random.Random(7)
    found: dict[str, Any] = {}
    with processes(place, venvs, KINDS) as running:
        for length in lengths:
            measured = {name: Measured() for name in running}
            for number in range(rounds):
                # Made anew each time: it has as many turns as the table says, and few more.
                with place.in_a_hurry():
                    for process in running.values():
                        process.prepare(length)
                if number == 0:
                    for process in running.values():
                        process.play(WARM_UP, 0)
                        process.rest()
                    for database in sorted({kind.database for kind in KINDS}):
                        place.settle(database)
                for name in order.sample(sorted(running), len(running)):
                    running[name].play(1, 0)
                    running[name].rest()
                    cpu, wal = place.server_cpu(), place.wal_bytes()
                    played = running[name].play(turns, WARM_UP + number * turns)
                    written, used = place.wal_bytes() - wal, place.server_cpu() - cpu
                    measured[name].add(played, used, written)
            found[str(length)] = {name: one.figures() for name, one in measured.items()}
            print(f"{length} earlier turns are measured", file=sys.stderr, flush=True)
    return found


def count(place: Stage, venvs: Path) -> dict[str, dict[str, int]]:
    """Statements of one turn of each kind, from the server's log."""
    found = {}
    for kind in KINDS:
        engine = sa.create_engine(place.server.url(kind.database))
        mine = Stage(place.server, engine, kind.database)
        roles = ("memberintel_app", "memberintel_jobs") if kind.module == "with_ours" else ("postgres",)
        with contextlib.ExitStack() as logs:
            statements = [logs.enter_context(mine.logged(role)) for role in roles][-1]
            process = Process(kind, place, venvs)
            process.prepare(10)
            process.play(2, 0)
            statements()
            process.play(1, 2)
            sent = statements()
            process.stop()
        engine.dispose()
        found[kind.name] = {"statements": len(sent), "of which control": sum(map(is_control, sent))}
    return found


def table(figures: dict[str, Any], counts: dict[str, dict[str, int]]) -> str:
    """The figures as Markdown."""
    lines = [
        "| earlier turns | | wall ms (quartiles) | client CPU ms | server CPU ms | KB written"
        " | wall: × stored, × turn, × turn and consumer | CPU: × stored, × turn, each with consumer | statements (control) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for length, kinds in figures.items():
        for name, f in kinds.items():
            low, high = f["wall_quartiles_ms"]
            wall = [_over(f, kinds[ours], "round_wall_ms") for ours in (STORED, TURN, TURN + CONSUMED)]
            cpu = [_over(f, kinds[ours + CONSUMED], "round_cpu_ms") for ours in (STORED, TURN)]
            sent = ""
            if length == next(iter(figures)):
                sent = f"{counts[name]['statements']} ({counts[name]['of which control']})"
            lines.append(
                f"| {length} | {name} | {f['wall_ms']} ({low}–{high}) | {f['client_cpu_ms']} | {f['server_cpu_ms']}"
                f" | {f['written_bytes'] / 1000:.1f} | {wall[0]:.2f}, {wall[1]:.2f}, {wall[2]:.2f} | {cpu[0]:.2f}, {cpu[1]:.2f}"
                f" | {sent} |"
            )
    return "\n".join(lines)


def _over(figures: dict[str, Any], ours: dict[str, Any], what: str) -> float:
    return statistics.median(one / base for one, base in zip(figures[what], ours[what], strict=True))


def main(argv: list[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rounds, and only the shortest conversation")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="earlier turns")
    parser.add_argument("--rounds", type=int, default=8, help="of 6 turns each")
    parser.add_argument(
        "--venvs",
        type=Path,
        default=ROOT / ".data" / "peers",
        help="folder of the peers' virtual environments",
    )
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    venvs = arguments.venvs.resolve()
    with stage() as place:
        for database in sorted({kind.database for kind in KINDS} - {place.database}):
            with place.superuser.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(sa.text(f"create database {database}"))
            inside = sa.create_engine(place.server.url(database), isolation_level="AUTOCOMMIT")
            with inside.connect() as connection:
                connection.execute(sa.text("create extension vector"))
            inside.dispose()
        counts = count(place, venvs)
        lengths, rounds = (LENGTHS[:1], 2) if arguments.quick else (arguments.lengths, arguments.rounds)
        figures = measure(place, venvs, tuple(lengths), rounds, turns=6)
    print(f"pg8000 {version('pg8000')}, SQLAlchemy {version('sqlalchemy')}\n")
    print(table(figures, counts))
    if arguments.json:
        arguments.json.write_text(json.dumps({"figures": figures, "counts": counts}, indent=2))


if __name__ == "__main__":
    main()

"""`chat` as an instance runs it: under the image's own command, on a database of its own, with a stub for a model."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from common.migrations import run as migrations
from local import package, postgres
from local.issuer import ISSUER
from tests.conftest import Database, add_person
from tests.contract.deployed import settings, trusted
from tests.e2e.conftest import free_port

QUESTION = "What would you advise me to do about failed payments?"
# As terraform/locals.tf has them for chat.
THREADS, POOL = 80, 8


@dataclass(frozen=True)
class Place:
    """A database with customers, and the environment of a function that serves them."""

    database: Database
    environment: dict[str, str]
    tokens: list[str]


@contextlib.contextmanager
def place(model: str, customers: int = 1) -> Iterator[Place]:
    """A place whose model is at the address `model`."""
    with postgres.throw_away(durable=True) as server, trusted(server.folder) as (issuer, keys):
        postgres.create_database(server, "bench")
        owner = sa.create_engine(server.url("bench", "memberintel_owner"), poolclass=sa.NullPool)
        migrations.migrate(owner)
        database = Database(server, "bench")
        people = [add_person(database, f"{n}@demo.example", issuer=ISSUER).email for n in range(customers)]
        environment = {
            **settings(database, (issuer, keys)),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(package.ROOT),
            "FUNCTION_TARGET": "main",
            "FUNCTION_SOURCE": "functions/chat/main.py",
            "K_SERVICE": "chat",
            "HOST": "127.0.0.1",
            "THREADS": str(THREADS),
            "ANTHROPIC_API_KEY": "sk-none",
            "ANTHROPIC_BASE_URL": model,
            "MEMBERINTEL_POOL_SIZE": str(POOL),
            "MEMBERINTEL_REQUESTS_PER_MINUTE": "100000",
        }
        yield Place(database, environment, [issuer.customer_token(email) for email in people])
        database.dispose()


@dataclass(frozen=True)
class Instance:
    """A running `chat`. It may not listen yet."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def worker(self) -> int:
        """The process that serves: gunicorn's only child."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


@contextlib.contextmanager
def instance(where: Place, model: str = "") -> Iterator[Instance]:
    """A fresh instance, until the block ends; with another `model` than the place's, if one is given."""
    port = free_port()
    command = [sys.executable, "-m", "functions.serve"]
    environment = {**where.environment, "PORT": str(port)} | ({"ANTHROPIC_BASE_URL": model} if model else {})
    with subprocess.Popen(command, cwd=package.ROOT, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            yield Instance(port, process)
        finally:
            process.terminate()


@dataclass(frozen=True)
class Answered:
    """One turn as its client saw it: seconds to the first of the answer's text, and whether it came to its end."""

    first: float
    complete: bool
    conversation: str


def cpu_seconds(*pids: int) -> float:
    """What these processes have used so far, to a hundredth."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(row[11]) + int(row[12]) for row in fields) / os.sysconf("SC_CLK_TCK")


async def ask(
    instance: Instance,
    token: str,
    *,
    conversation: str | None = None,
    wait: float = 0,
    on_first: Callable[[], None] = lambda: None,
) -> Answered:
    """One turn, asked as soon as the instance listens, `wait` seconds from now. `on_first` is called when the first text is there."""
    await asyncio.sleep(wait)
    began = time.perf_counter()
    reader, writer = await _connected(instance.port)
    message = {"message": QUESTION} | ({"conversation_id": conversation} if conversation else {})
    body = json.dumps(message).encode()
    writer.write(
        f"POST /chat HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        + body
    )
    first, status, started = 0.0, "", ""
    while line := await reader.readline():
        if not first and b'"text-delta"' in line:
            first = time.perf_counter() - began
            on_first()
        elif b'"start"' in line or b'"finish"' in line:
            metadata = json.loads(line.removeprefix(b"data: "))["messageMetadata"]
            started = started or metadata["conversation_id"]
            status = metadata.get("status", "")
    writer.close()
    return Answered(first, bool(first) and status == "complete", started)


async def _connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.005)

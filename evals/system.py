"""The running system for an eval: every function behind one HTTP address, a database of its own, a clock that stands still, and a record
of every request that left for a model and every statement that went to the database.

What belongs to which case is told by the trace id that the case's HTTP request carries, as in production's logs. One process holds one
system at a time: the clock, the settings and the providers are the process's.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import threading
import urllib.error
import urllib.request
import uuid
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from werkzeug.serving import WSGIRequestHandler, make_server

from common import clock, db, log
from common.advisor import context
from common.config import PREFIX, Settings, settings
from common.events import CONSUMERS, Event, write_push
from common.llm import call, prices
from common.llm.types import ModelChoice, ModelRequest, Provider, ProviderEvent, Stop, Usage
from common.memory import snapshot_summary
from common.memory.snapshot_summary import Snapshot
from common.migrations import run as migrations
from common.text import to_json
from local import postgres
from local.app import JWKS_PATH, LocalApp, function_names
from local.dispatcher import Dispatcher
from local.issuer import Issuer

TRACE = "logging.googleapis.com/trace"
EMPTY = "evals_empty"
BLOCK = "recall_block"  # the name by which the context builder knows the function that makes it


class HttpError(Exception):
    """The system answered with an error status."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body[:300]}")
        self.status = status


@dataclass
class Seen:
    """What one HTTP request caused."""

    requests: list[ModelRequest] = field(default_factory=list)
    sql: list[tuple[str, str]] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    cost_usd: Decimal = Decimal(0)


class _Recording:
    """A provider that notes each request at the moment it is handed over, and what it cost."""

    def __init__(self, name: str, behind: Provider, seen: Callable[[], Seen]) -> None:
        self._name, self._behind, self._seen = name, behind, seen

    def preload(self) -> None:
        self._behind.preload()

    def stream(self, request: ModelRequest, model: str) -> Generator[ProviderEvent]:
        seen = self._seen()
        seen.requests.append(request)
        with closing(self._behind.stream(request, model)) as events:
            for event in events:
                if isinstance(event, Stop):
                    seen.models.append(f"{self._name}:{event.model}")
                    seen.usage += event.usage
                    seen.cost_usd += prices.cost_usd(ModelChoice(self._name, model), event.usage)
                yield event


class System:
    """The system of this process. `now` is what all of it takes the time to be."""

    def __init__(self, server: postgres.Server, issuer: Issuer, now: datetime) -> None:
        self.server, self.issuer, self.now = server, issuer, now
        self.seen: defaultdict[str, Seen] = defaultdict(Seen)
        self.provider: Provider | None = None
        self.blocks: dict[
            str, str
        ] = {}  # trace id -> the recall block that its turn gets in place of the design's
        self._make = call._provider
        self._address = ""

    def provide(self, name: str, config: Settings) -> Provider:
        """The provider behind the seam: the one that was put there, else the configured vendor's, recorded."""
        behind = self.provider or self._make(name, config)
        return _Recording(name, behind, self._seen_now)

    def _seen_now(self) -> Seen:
        """Where to note what the present request causes; what belongs to no case is not kept."""
        trace = _trace()
        return self.seen[trace] if trace else Seen()

    def recall_block(self, snapshots: Sequence[Snapshot], timezone: str) -> tuple[str, list[str]]:
        """The block of the present turn: the design's, or the one that was put in its place."""
        block = self.blocks.get(_trace())
        if block is None:
            return snapshot_summary.recall_block(snapshots, timezone)
        return block, [line for line in block.splitlines() if line.startswith("- ")]

    @contextlib.contextmanager
    def database(self, name: str) -> Iterator[None]:
        """Use the database `name` until the block ends."""
        os.environ["MEMBERINTEL_DATABASE_URL"] = self.server.url(name)
        _forget()
        try:
            with db.heard(self._note):
                yield
        finally:
            for used in db.ROLE_NAMES:
                db.engine(used).dispose()
            _forget()

    def _note(self, role: str, statement: str) -> None:
        if trace := _trace():
            self.seen[trace].sql.append((role, statement))

    def copy(self, source: str, name: str) -> None:
        """Make the database `name`, a copy of `source`, in place of any of that name."""
        admin = sa.create_engine(
            self.server.url("postgres"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
        )
        with admin.connect() as connection:
            connection.execute(sa.text(f'drop database if exists "{name}" with (force)'))
            connection.execute(
                sa.text(f'create database "{name}" template "{source}" owner memberintel_owner')
            )

    def request(
        self, method: str, path: str, token: str, body: dict[str, Any] | None = None, trace: str = ""
    ) -> dict[str, Any]:
        """The JSON that the system answers. Raises HttpError."""
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json",
            "Content-Type": "application/json",
        }
        if trace:
            headers["traceparent"] = f"00-{trace}-{trace[:16]}-01"
        data = to_json(body).encode() if body is not None else None
        asked = urllib.request.Request(self._address + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=600) as response:
                read = response.read()
        except urllib.error.HTTPError as exc:
            raise HttpError(exc.code, exc.read().decode(errors="replace")) from None
        return dict(json.loads(read)) if read else {}

    def chat(self, email: str, message: str, trace: str = "", **body: Any) -> dict[str, Any]:
        """One turn of the customer with this address, as a document."""
        return self.request(
            "POST", "/chat", self.issuer.customer_token(email), {"message": message, **body}, trace
        )

    def deliver(self) -> None:
        """Push what waits in the outbox and is due to its consumers, as Pub/Sub would."""
        with db.transaction("jobs") as connection:
            waiting = connection.execute(
                sa.text("select id, type from outbox_events where deliver_after <= :now and dead_at is null"),
                {"now": self.now},
            ).all()
        for row in waiting:
            push = write_push(Event(row.id, row.type))
            self.request("POST", f"/internal/{CONSUMERS[row.type]}", self.issuer.internal_token(), push)

    def serve(self) -> Callable[[], None]:
        """Serve all functions on a free port; returns how to stop."""
        kept = Dispatcher(
            "", self.issuer.internal_token, function_names()
        )  # takes what is published, delivers nothing
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        app = LocalApp(kept, self.issuer, port)
        server = make_server("127.0.0.1", port, app, threaded=True, request_handler=_Quiet)
        self._address = f"http://127.0.0.1:{port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server.shutdown

    @property
    def address(self) -> str:
        return self._address


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """No access log."""


def new_trace() -> str:
    """An id by which what one request causes is found again."""
    return uuid.uuid4().hex


def _trace() -> str:
    return log.current_trace().get(TRACE, "")


def _forget() -> None:
    settings.cache_clear()
    db.engine.cache_clear()


@contextlib.contextmanager
def running(now: datetime, environ: dict[str, str] | None = None) -> Iterator[System]:
    """A system on an empty PostgreSQL in a folder that goes with it, with `environ` as further settings and none
    from outside. Log lines go to `log.jsonl` in that folder."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="memberintel-evals-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)  # as root, the server's own account must be able to enter
        stack.callback(_restore, before, clock.now, call._provider, getattr(context, BLOCK))
        server = stack.enter_context(postgres.server(folder, durable=False))
        postgres.create_database(server, EMPTY)
        owner = sa.create_engine(server.url(EMPTY, "memberintel_owner"), poolclass=sa.NullPool)
        migrations.migrate(owner)
        system = System(server, Issuer(folder), now)
        stack.enter_context(contextlib.redirect_stdout(stack.enter_context((folder / "log.jsonl").open("w"))))
        stack.callback(system.serve())
        for variable in [name for name in os.environ if name.startswith(PREFIX)]:
            del os.environ[variable]
        os.environ.update(system.issuer.settings(system.address + JWKS_PATH))
        os.environ.update(
            {
                "MEMBERINTEL_LOCAL_DISPATCHER_URL": f"{system.address}/local",
                "MEMBERINTEL_ERASURE_LEDGER": str(folder / "erasures.jsonl"),
                "MEMBERINTEL_REQUESTS_PER_MINUTE": "100000",
                "MEMBERINTEL_DAILY_SPEND_STOP_USD": "1000000",
                **(environ or {}),
            }
        )
        clock.now = lambda: system.now
        call._provider = system.provide  # type: ignore[assignment]
        setattr(context, BLOCK, system.recall_block)
        yield system


def _restore(environ: dict[str, str], now: Any, provider: Any, block: Any) -> None:
    os.environ.clear()
    os.environ.update(environ)
    clock.now, call._provider = now, provider
    setattr(context, BLOCK, block)
    _forget()

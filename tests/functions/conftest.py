"""The functions over HTTP: each made by functions-framework from its folder, on a database of the test's own, with a local issuer."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import functions_framework
import pytest
from werkzeug.test import Client, TestResponse

from common import db, events
from common.config import settings
from local.app import FUNCTIONS
from local.issuer import ISSUER, Issuer
from tests.conftest import Database, Person, add_person


class Recorder:
    """A publisher that keeps what was published, so that a test decides when it is delivered."""

    def __init__(self) -> None:
        self.published: list[events.Event] = []
        self.fails = False

    def publish(self, sent: Any) -> None:
        if self.fails:
            raise ConnectionError("no route to the topic")
        self.published += sent


@dataclass
class System:
    """The running functions and what a test needs to use them."""

    database: Database
    issuer: Issuer
    publisher: Recorder
    owner: Person
    other: Person
    _clients: dict[str, Client] = field(default_factory=dict)

    def client(self, function: str) -> Client:
        if function not in self._clients:
            app = functions_framework.create_app("main", str(FUNCTIONS / function / "main.py"))
            self._clients[function] = Client(app)
        return self._clients[function]

    def token(self, person: Person) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.issuer.customer_token(person.email)}"}

    def chat(
        self, message: str, *, person: Person | None = None, stream: bool = False, **body: Any
    ) -> TestResponse:
        """One turn; as a document unless `stream`."""
        headers = {
            **self.token(person or self.owner),
            "Accept": "text/event-stream" if stream else "application/json",
        }
        return self.client("chat").post("/chat", json={"message": message, **body}, headers=headers)

    def internal(self, function: str, body: dict[str, Any]) -> TestResponse:
        """A call as Pub/Sub or Scheduler makes it."""
        headers = {"Authorization": f"Bearer {self.issuer.internal_token()}"}
        return self.client(function).post(f"/internal/{function}", json=body, headers=headers)

    def deliver(self, event: events.Event) -> TestResponse:
        """Push `event` to its consumer."""
        return self.internal(events.CONSUMERS[event.type], events.write_push(event))

    def deliver_all(self) -> None:
        """Push what was published and not yet delivered."""
        waiting, self.publisher.published = self.publisher.published, []
        for event in waiting:
            if (FUNCTIONS / events.CONSUMERS[event.type] / "main.py").exists():
                assert self.deliver(event).status_code == 200


def parts(response: TestResponse) -> list[dict[str, Any]]:
    """The chunks of a streamed answer, without `[DONE]`."""
    lines = response.get_data(as_text=True).split("\n\n")
    assert lines[-2] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2] if line.startswith("data: ")]


class _Keys(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.keys)  # type: ignore[attr-defined]

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="session")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Issuer, str]]:
    """A local issuer and the address of its public keys."""
    made = Issuer(tmp_path_factory.mktemp("issuer"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Keys)
    server.keys = made.jwks.read_bytes()  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield made, f"http://127.0.0.1:{server.server_port}/jwks.json"
    server.shutdown()


@pytest.fixture
def system(
    database: Database, issuer: tuple[Issuer, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[System]:
    yield from running_system(database, issuer, monkeypatch)


def running_system(
    database: Database, issuer: tuple[Issuer, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[System]:
    """The functions on `database`, with two people in it, while the iteration lasts."""
    signer, keys = issuer
    for name, value in signer.settings(keys).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MEMBERINTEL_DATABASE_URL", database.server.url(database.name))
    monkeypatch.setenv("MEMBERINTEL_EMBEDDING_MODEL", "hashed")
    monkeypatch.setenv("MEMBERINTEL_ERASURE_LEDGER", str(signer.jwks.parent / f"{database.name}.jsonl"))
    monkeypatch.setenv("MEMBERINTEL_REQUESTS_PER_MINUTE", "100000")  # tests are faster than people
    settings.cache_clear()
    db.engine.cache_clear()
    publisher = Recorder()
    monkeypatch.setattr(events, "publisher", lambda _config: publisher)
    owner = add_person(database, "owner@demo.example", issuer=ISSUER)
    other = add_person(database, "other@demo.example", issuer=ISSUER)
    yield System(database, signer, publisher, owner, other)
    for role in ("app", "jobs", "sweep", "admin_read"):
        db.engine(role).dispose()
    db.engine.cache_clear()
    settings.cache_clear()

"""Each function under functions-framework's own command and server, from the archive that is deployed."""

from __future__ import annotations

import http.client
import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from local import package
from local.issuer import ISSUER, Issuer
from tests.conftest import Database, Person, add_person
from tests.contract.deployed import Deployed, deployed, settings, trusted, until
from tests.stubs.anthropic_server import Reply, Scripted, message, scripted

pytestmark = pytest.mark.slow
QUESTION = "What would you advise me to do about failed payments?"


Trust = tuple[Issuer, str]


@pytest.fixture
def trust(tmp_path: Path) -> Iterator[Trust]:
    with trusted(tmp_path) as made:
        yield made


def ask(running: Deployed, path: str, body: Any, **headers: str) -> http.client.HTTPResponse:
    """The response to a POST, its body not read yet."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
    return connection.getresponse()


def read(running: Deployed, path: str, **headers: str) -> http.client.HTTPResponse:
    """The response to a GET."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


@pytest.mark.parametrize("name", package.FUNCTIONS)
def test_a_function_starts_from_its_archive_alone_and_does_its_work(
    name: str, database: Database, trust: Trust, tmp_path: Path
) -> None:
    with deployed(name, tmp_path, settings(database, trust)) as running:
        assert ask(running, "/", {}).status == 401
        answer = ask(running, "/", {}, Authorization=f"Bearer {trust[0].internal_token()}")
        assert answer.status == 200, (answer.read(), running.log)
    assert running.process.returncode == 0, running.log


@pytest.mark.parametrize("wrong", [{"MEMBERINTEL_POOL_SIZE": "many"}, {"MEMBERINTEL_NO_SUCH": "1"}])
def test_a_wrong_setting_stops_the_start_and_is_named(
    wrong: dict[str, str], database: Database, trust: Trust, tmp_path: Path
) -> None:
    with (
        pytest.raises(AssertionError, match=next(iter(wrong))),
        deployed("relay_events", tmp_path, settings(database, trust, **wrong)),
    ):
        pass


@pytest.mark.parametrize(("name", "path"), [("brain", "/v1/sites"), ("admin", "/admin/v1/triggers")])
def test_a_service_starts_with_what_is_in_the_image(
    name: str, path: str, database: Database, trust: Trust, owner: Person, tmp_path: Path
) -> None:
    with deployed(name, tmp_path, settings(database, trust)) as running:
        refused = read(running, path)
        assert refused.status == 401
        assert refused.headers["Content-Type"] == "application/problem+json"
        token = {"Authorization": f"Bearer {trust[0].customer_token(owner.email)}"}
        answer = read(running, path, **token, **{"Cf-Access-Jwt-Assertion": trust[0].admin_assertion()})
        assert answer.status == 200, (answer.read(), running.log)


class Spoken:
    """A model's answer of which the second half waits until the test lets it go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, data in message({"type": "text", "text": "first second"}).events:
            if data.get("delta", {}).get("text") == " second":
                assert self.go_on.wait(60)
            yield name, data


class Stream:
    """A streamed answer, read chunk by chunk."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        assert response.status == 200
        self.response = response

    def until(self, kind: str) -> dict[str, Any]:
        """The next chunk of this type."""
        while line := self.response.readline():
            if line.startswith(b"data: {") and (chunk := json.loads(line[6:]))["type"] == kind:
                found: dict[str, Any] = chunk
                return found
        raise AssertionError(f"the stream ended without {kind}")

    def rest(self) -> bytes:
        return self.response.read()


@pytest.fixture
def model() -> Iterator[Scripted]:
    with scripted() as server:
        yield server


@pytest.fixture
def owner(database: Database) -> Person:
    return add_person(database, "owner@demo.example", issuer=ISSUER)


@contextmanager
def chat(database: Database, trust: Trust, model: Scripted, folder: Path) -> Iterator[Deployed]:
    more = {
        "ANTHROPIC_API_KEY": "sk-test",
        "ANTHROPIC_BASE_URL": model.url,
        "THREADS": "4",
        "GUNICORN_LOG_LEVEL": "info",
    }
    with deployed("chat", folder, settings(database, trust, **more)) as running:
        yield running


def turn(running: Deployed, trust: Trust, owner: Person) -> Stream:
    token = f"Bearer {trust[0].customer_token(owner.email)}"
    return Stream(
        ask(running, "/chat", {"message": QUESTION, "turn_id": str(uuid.uuid4())}, Authorization=token)
    )


def test_what_the_model_says_is_sent_while_it_speaks(
    database: Database, trust: Trust, model: Scripted, owner: Person, tmp_path: Path
) -> None:
    """The second half of the answer does not exist before the client has the first."""
    spoken = Spoken()
    model.play(Reply(events=spoken))  # type: ignore[arg-type]
    with chat(database, trust, model, tmp_path) as running:
        stream = turn(running, trust, owner)
        assert stream.until("text-delta")["delta"] == "first"
        assert not spoken.go_on.is_set()
        spoken.go_on.set()
        assert stream.until("text-delta")["delta"] == " second"
        assert stream.rest().endswith(b"data: [DONE]\n\n")


def test_a_stream_that_runs_is_finished_before_the_process_ends(
    database: Database, trust: Trust, model: Scripted, owner: Person, tmp_path: Path
) -> None:
    spoken = Spoken()
    model.play(Reply(events=spoken))  # type: ignore[arg-type]
    with chat(database, trust, model, tmp_path) as running:
        stream = turn(running, trust, owner)
        stream.until("text-delta")
        running.stop()
        until(lambda: "Handling signal: term" in running.log)
        spoken.go_on.set()
        assert stream.until("finish")["messageMetadata"]["status"] == "complete"
        assert stream.rest().endswith(b"data: [DONE]\n\n")
        assert running.process.wait(timeout=60) == 0, running.log
    assert database.rows("select status, text from messages where role = 'assistant'") == [
        ("complete", "first second")
    ]

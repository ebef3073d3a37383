"""Google's Pub/Sub emulator between the real publisher and the real function: `chat` publishes, a push subscription delivers to
`persist_tool_results`, each under the framework's server in a process of its own.

The emulator signs nothing, so a door before the function adds the token that Pub/Sub would bring. It also keeps what was pushed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import signal
import subprocess
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from google.cloud import pubsub_v1

from common.events import Event, PubSubPublisher, relay
from local.issuer import ISSUER, Issuer
from tests.conftest import Database, Person, add_person
from tests.contract.deployed import Deployed, deployed, settings, trusted, until
from tests.e2e.conftest import ROOT, command, free_port

pytestmark = pytest.mark.slow
PROJECT = "memberintel-test"
TOPIC = "tool-results"
QUESTION = "How many active members do I have?"


def emulator_program() -> Path | None:
    """The emulator's start script beside gcloud, if it is installed."""
    gcloud = shutil.which("gcloud")
    roots = [Path(gcloud).resolve().parents[1]] if gcloud else []
    for root in (*roots, Path("/usr/lib/google-cloud-sdk")):
        program = root / "platform/pubsub-emulator/bin/cloud-pubsub-emulator"
        if program.exists() and shutil.which("java"):
            return program
    return None


@pytest.fixture(scope="module")
def emulator() -> Iterator[str]:
    """The address of a running emulator, for this process too."""
    program = emulator_program()
    if program is None:
        pytest.skip(
            "Google's Pub/Sub emulator (gcloud components install pubsub-emulator) is not on this machine"
        )
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [str(program), "--host=127.0.0.1", f"--port={address.rpartition(':')[2]}"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PUBSUB_EMULATOR_HOST", address)
        assert process.stdout is not None
        assert any("Server started" in line for line in process.stdout)
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield address
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=30)


@dataclass
class Door:
    """Stands before the function: adds the token, keeps each pushed body, and what the function answered."""

    issuer: Issuer
    target: int = 0
    pushed: list[dict[str, Any]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    open: threading.Event = field(default_factory=threading.Event)

    def deliver(self, body: bytes) -> int:
        """The status of the function's answer."""
        self.open.wait(60)
        self.pushed.append(json.loads(body))
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.target}/",
            data=body,
            headers={
                "Content-Type": "application/json",
                "Authorization": f"Bearer {self.issuer.internal_token()}",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status = int(answer.status)
        except urllib.error.HTTPError as exc:
            status = exc.code
        self.statuses.append(status)
        return status


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.door.deliver(body))  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def door(issuer: Issuer) -> Iterator[tuple[Door, str]]:
    """An open door and its address."""
    made = Door(issuer)
    made.open.set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.door = made  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made, f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Cloud:
    """The parts that a test looks at."""

    database: Database
    trust: tuple[Issuer, str]
    owner: Person
    door: Door
    chat: Deployed
    consumer: Deployed

    def ask(self) -> dict[str, Any]:
        """One turn that calls a tool."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.chat.port}/chat",
            data=json.dumps({"message": QUESTION}).encode(),
            headers={
                "Content-Type": "application/json",
                "Accept": "application/json",
                "Authorization": f"Bearer {self.trust[0].customer_token(self.owner.email)}",
            },
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            answer: dict[str, Any] = json.load(response)
        assert answer["tool_calls"]
        return answer

    def snapshots(self, answer: dict[str, Any]) -> int:
        found = self.database.scalar(
            "select count(*) from message_tool_results where message_id = :id", id=answer["message_id"]
        )
        assert isinstance(found, int)
        return found

    def event_of(self, answer: dict[str, Any]) -> list[Any]:
        """The outbox row of the answer's tool results: (id, attempts, dead_at, last_error), or nothing."""
        return self.database.rows(
            "select id, attempts, dead_at, last_error from outbox_events"
            " where type = 'tool-results' and payload->>'message_id' = :id",
            id=answer["message_id"],
        )

    def publish_again(self, event_id: uuid.UUID) -> None:
        """What `relay_events` does once a published event was not consumed in time."""
        PubSubPublisher(PROJECT).publish([Event(event_id, TOPIC)])


@pytest.fixture(scope="module")
def cloud(
    emulator: str, module_database: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cloud]:
    folder = tmp_path_factory.mktemp("cloud")
    owner = add_person(module_database, "owner@demo.example", issuer=ISSUER)
    with trusted(folder) as trust, door(trust[0]) as (stands, address):
        environment = settings(
            module_database, trust, PUBSUB_EMULATOR_HOST=emulator, MEMBERINTEL_PUBSUB_PROJECT=PROJECT
        )
        subscribe(address)
        with (
            deployed("persist_tool_results", folder, environment) as consumer,
            deployed("chat", folder, environment) as chat,
        ):
            stands.target = consumer.port
            yield Cloud(module_database, trust, owner, stands, chat, consumer)


def subscribe(address: str) -> None:
    """The topics, and the push subscription as Terraform makes it, with a shorter pause between attempts."""
    publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
    for topic in (TOPIC, "session-ended"):
        publisher.create_topic(name=publisher.topic_path(PROJECT, topic))
    with subscriber:
        subscriber.create_subscription(
            request={
                "name": subscriber.subscription_path(PROJECT, TOPIC),
                "topic": publisher.topic_path(PROJECT, TOPIC),
                "push_config": {"push_endpoint": address},
                "ack_deadline_seconds": 10,
                "retry_policy": {
                    "minimum_backoff": timedelta(seconds=0),
                    "maximum_backoff": timedelta(seconds=1),
                },
            }
        )


def test_a_turns_tool_results_become_snapshots_and_the_message_tells_nothing(cloud: Cloud) -> None:
    answer = cloud.ask()
    until(lambda: cloud.snapshots(answer) == len(answer["tool_calls"]))
    until(lambda: not cloud.event_of(answer))
    (pushed,) = [p for p in cloud.door.pushed if p["message"]["data"]][-1:]
    message = pushed["message"]
    carried = json.loads(base64.b64decode(message["data"]))
    assert carried.keys() == {"id", "type", "version"}
    assert (carried["type"], carried["version"]) == (TOPIC, 1)
    assert not message.get("attributes")
    everything = json.dumps(cloud.door.pushed) + json.dumps(carried)
    told = [
        cloud.owner.user_id,
        cloud.owner.tenant_id,
        cloud.owner.site_id,
        answer["conversation_id"],
        "active",
    ]
    assert not [secret for secret in map(str, told) if secret in everything]


def test_a_message_that_comes_again_changes_nothing(cloud: Cloud) -> None:
    answer = cloud.ask()
    until(lambda: not cloud.event_of(answer))
    before, count = cloud.snapshots(answer), len(cloud.door.statuses)
    event = json.loads(base64.b64decode(cloud.door.pushed[-1]["message"]["data"]))
    for _ in range(3):
        cloud.publish_again(uuid.UUID(event["id"]))
    until(lambda: len(cloud.door.statuses) >= count + 3)
    assert set(cloud.door.statuses[count:]) == {200}
    assert cloud.snapshots(answer) == before > 0


def test_a_consumer_that_fails_is_called_again_until_it_succeeds(cloud: Cloud) -> None:
    count = len(cloud.door.statuses)
    cloud.door.open.clear()
    answer = cloud.ask()
    cloud.database.run("alter table message_tool_results rename to away")
    try:
        cloud.door.open.set()
        until(lambda: cloud.event_of(answer)[0].attempts >= 2)
    finally:
        cloud.database.run("alter table away rename to message_tool_results")
    until(lambda: not cloud.event_of(answer))
    assert cloud.snapshots(answer) == len(answer["tool_calls"])
    assert cloud.door.statuses[count] >= 500
    until(lambda: cloud.door.statuses[-1] == 200)


def test_a_poison_event_dies_with_an_alert_and_comes_back_by_replay(cloud: Cloud) -> None:
    count = len(cloud.door.statuses)
    cloud.door.open.clear()
    answer = cloud.ask()
    (event,) = cloud.event_of(answer)
    spoil = "update outbox_events set payload = jsonb_set(payload, '{results}', :value) where id = :id"
    good = cloud.database.scalar("select payload->'results' from outbox_events where id = :id", id=event.id)
    cloud.database.run(spoil.replace(":value", "cast(:value as jsonb)"), value='"spoilt"', id=event.id)
    cloud.door.open.set()

    dead = until(lambda: [row for row in cloud.event_of(answer) if row.dead_at])[0]
    assert dead.attempts == 5
    until(lambda: cloud.door.statuses[-1] == 200)  # acknowledged: Pub/Sub has done its part
    assert [status >= 500 for status in cloud.door.statuses[count:]] == [True] * 4 + [False]
    alerts = [json.loads(line) for line in cloud.consumer.log.splitlines() if "events_dead_total" in line]
    assert [(a["severity"], a["event_type"]) for a in alerts] == [("ERROR", TOPIC)]
    assert cloud.snapshots(answer) == 0

    cloud.database.run(spoil.replace(":value", "cast(:value as jsonb)"), value=json.dumps(good), id=event.id)
    listed = dead_letters(cloud, "list")
    assert str(event.id) in listed
    dead_letters(cloud, "replay", "--id", str(event.id))
    relay(
        PubSubPublisher(PROJECT),
        now=datetime.now(UTC) + timedelta(minutes=1),
        source=cloud.database.engine("jobs"),
    )
    until(lambda: not cloud.event_of(answer))
    assert cloud.snapshots(answer) == len(answer["tool_calls"])


def dead_letters(cloud: Cloud, *words: str) -> str:
    """What `memberintel dead-letters` prints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMBERINTEL_DATABASE_URL", cloud.database.server.url(cloud.database.name))
        patch.setenv("PYTHONPATH", str(ROOT))
        return command(cloud.trust[0].jwks.parent, "dead-letters", *words).stdout

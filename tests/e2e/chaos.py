"""A load of chats on one real `chat` process, and the ledger that is kept of it outside: what was acknowledged must be there at the end."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from werkzeug.test import Client

from common import events
from tests.conftest import Person
from tests.contract.deployed import until
from tests.e2e.conftest import ROOT, free_port
from tests.functions.conftest import System
from tests.stubs.anthropic_server import Reply, api_error, message

PATIENCE = 100.0  # seconds in which a client must get its answer, whatever happens meanwhile
T = TypeVar("T")


class Model:
    """The provider: a tool call, then an answer that names its question, a word at a time. While `down`, an overloaded server."""

    def __init__(self, pace: float = 0.01) -> None:
        self.pace = pace  # seconds to a word
        self.down = False
        self.refused = 0

    def __call__(self, body: dict[str, Any]) -> Reply:
        if self.down:
            self.refused += 1
            return api_error(529, "overloaded_error")
        question = re.findall(r"\[(q-\d+-\d+)\]", json.dumps(body["messages"]))[-1]
        last = body["messages"][-1]["content"]
        if isinstance(last, list) and any(block.get("type") == "tool_result" for block in last):
            whole = message({"type": "text", "text": answer_to(question)})
            return Reply(events=self._spoken(whole))  # type: ignore[arg-type]
        call = {
            "type": "tool_use",
            "id": f"toolu_{question}",
            "name": "query_site_data",
            "input": {"target": "memberships"},
        }
        return message(call, stop="tool_use")

    def _spoken(self, whole: Reply) -> Iterator[Any]:
        for event in whole.events:
            time.sleep(self.pace)
            yield event


def answer_to(question: str) -> str:
    """What the model says to `question`."""
    return f"Answer to {question}: write to the customer first, then try the card again after three days."


class Chat:
    """`chat` under the image's command, at an address that outlives its process."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.port = free_port()
        self._log = folder / "chat.log"
        self._environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "FUNCTION_TARGET": "main",
            "FUNCTION_SOURCE": "functions/chat/main.py",
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "THREADS": "16",
            **environment,
        }

    def start(self) -> None:
        """Start it and wait until it listens."""
        command = [sys.executable, "-m", "functions.serve"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        until(self._listens, 60)

    def _listens(self) -> bool:
        assert self._process.poll() is None, self.log
        try:
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=1).connect()
        except OSError:
            return False
        return True

    @property
    def worker(self) -> int:
        """The process that serves: gunicorn's only child."""
        pid = self._process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def kill(self) -> None:
        """Kill it and its worker at once, as a machine that goes away does."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text()


class Topic:
    """The topics and their push subscriptions: delivers at least once, some twice, and loses one message in seven."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._waiting: queue.SimpleQueue[events.Event] = queue.SimpleQueue()
        self._taken = 0
        self._ending = threading.Event()

    def publish(self, sent: Any) -> None:
        for event in sent:
            self._taken += 1
            for _ in range({0: 0, 1: 2}.get(self._taken % 7, 1)):
                self._waiting.put(event)

    def deliver(self) -> None:
        """Deliver until it is told to end; what is not acknowledged is delivered again."""
        while not self._ending.is_set():
            with contextlib.suppress(queue.Empty):
                event = self._waiting.get(timeout=0.05)
                if self._system.deliver(event).status_code != 200:
                    self._waiting.put(event)
                    self._ending.wait(0.1)

    def end(self) -> None:
        self._ending.set()

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        """The address where other processes publish, with the delivery running, until the block ends."""
        topic = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                topic.publish([events.decode(self.rfile.read(int(self.headers["Content-Length"])))])
                self.send_response(204)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threads = [threading.Thread(target=server.serve_forever), threading.Thread(target=self.deliver)]
        for thread in threads:
            thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            self.end()
            server.shutdown()
            server.server_close()
            for thread in threads:
                thread.join()


@dataclass(frozen=True)
class Answered:
    """A turn whose `finish` its client has seen."""

    person: Person
    turn_id: str
    question: str
    conversation_id: str
    message_id: str
    status: str
    text: str
    tools: dict[str, Any]


@dataclass
class Ledger:
    """What the system acknowledged to its clients."""

    answered: list[Answered] = field(default_factory=list)
    helpful: set[str] = field(default_factory=set)
    deleted_conversations: set[str] = field(default_factory=set)
    deleted_snapshots: dict[str, str] = field(default_factory=dict)  # id -> the message whose snapshot it was
    retries: int = 0


@dataclass
class Load:
    """Customers who chat, each in a thread, and who do not give up."""

    system: System
    chat: Chat
    ledger: Ledger = field(default_factory=Ledger)
    failures: list[BaseException] = field(default_factory=list)

    def run(self, people: list[Person], turns: range) -> list[threading.Thread]:
        """The running customers, each of whom has these turns to go."""
        threads = [
            threading.Thread(target=self._customer, args=(person, number, turns))
            for number, person in enumerate(people)
        ]
        for thread in threads:
            thread.start()
        return threads

    def answered(self, count: int) -> None:
        """Wait until so many turns are acknowledged."""
        until(lambda: bool(self.failures) or len(self.ledger.answered) >= count, PATIENCE)
        assert not self.failures, self.failures

    def _customer(self, person: Person, number: int, turns: range) -> None:
        try:
            brain = Client(self.system.client("brain").application, use_cookies=False)
            headers = self.system.token(person)
            conversation: str | None = None
            for turn in turns:
                answered = self.ask(person, f"q-{number}-{turn}", conversation if turn % 3 else None)
                self.ledger.answered.append(answered)
                conversation = answered.conversation_id
                if turn % 3 == 1:
                    path = f"/v1/messages/{answered.message_id}/feedback"
                    self._insist(brain.put, path, headers=headers, json={"helpful": True})
                    self.ledger.helpful.add(answered.message_id)
                if turn % 6 == 2:
                    self._delete_a_snapshot(brain, headers)
                if turn % 6 == 5:
                    self._insist(brain.delete, f"/v1/conversations/{conversation}", headers=headers)
                    self.ledger.deleted_conversations.add(conversation)
        except BaseException as exc:
            self.failures.append(exc)

    def _delete_a_snapshot(self, brain: Client, headers: dict[str, str]) -> None:
        """Delete the newest snapshot, if there is one by now."""
        listed = self._insist(brain.get, "/v1/snapshots", headers=headers).json
        for snapshot in listed["items"][:1]:
            self._insist(brain.delete, f"/v1/snapshots/{snapshot['id']}", headers=headers)
            self.ledger.deleted_snapshots[snapshot["id"]] = snapshot["message_id"]

    def _insist(self, call: Callable[..., Any], path: str, **request: Any) -> Any:
        """The response once there is one; anything but an outage is a failure. A deletion that is repeated finds nothing."""

        def once() -> Any:
            response = call(path, **request)
            assert response.status_code in {200, 204, 404, 503}, response.get_data(as_text=True)
            return response if response.status_code != 503 else None

        return until(once, PATIENCE)

    def ask(self, person: Person, question: str, conversation: str | None) -> Answered:
        """One turn, sent again with its id until its end is seen."""
        body = {
            "message": f"What would you advise me to do about failed payments? [{question}]",
            "turn_id": question,
        }
        if conversation:
            body["conversation_id"] = conversation

        def once() -> Answered | None:
            try:
                found = self._try(person, question, body)
            except (OSError, http.client.HTTPException):
                found = None
            self.ledger.retries += found is None
            return found

        return until(once, PATIENCE)

    def _try(self, person: Person, question: str, body: dict[str, str]) -> Answered | None:
        connection = http.client.HTTPConnection("127.0.0.1", self.chat.port, timeout=30)
        headers = {"Content-Type": "application/json", **self.system.token(person)}
        with contextlib.closing(connection):
            connection.request("POST", "/chat", json.dumps(body), headers)
            response = connection.getresponse()
            if response.status != 200:
                assert response.status in {409, 503}, (response.status, response.read())
                return None
            start: dict[str, Any] = {}
            text, tools = "", {}
            while line := response.readline():
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[6:])
                if chunk["type"] == "start":
                    start = chunk
                elif chunk["type"] == "text-delta":
                    text += chunk["delta"]
                elif chunk["type"] == "tool-output-available":
                    tools[chunk["toolCallId"]] = chunk["output"]
                elif chunk["type"] == "finish":
                    return Answered(
                        person, body["turn_id"], question, start["messageMetadata"]["conversation_id"], start["messageId"],
                        chunk["messageMetadata"]["status"], text.strip(), tools,
                    )  # fmt: skip
        return None


def at(moment: datetime) -> dict[str, str]:
    """The body of an internal call that is to work at `moment`."""
    return {"now": moment.isoformat()}

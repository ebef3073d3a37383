"""A local HTTP server that answers each request with the next reply of a script and keeps what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Event = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Reply:
    """An answer: an error's status and body, or events that are streamed. `cut` breaks the connection after them, `hang` keeps it
    open and silent until the server stops."""

    events: tuple[Event, ...] = ()
    status: int = 200
    body: dict[str, Any] = field(default_factory=dict)
    cut: bool = False
    hang: bool = False


@dataclass
class Scripted:
    """A running server: its address, what it received, and the replies to come (the last is repeated). With `answer`, what it makes of
    a request's body is the reply."""

    url: str
    script: list[Reply]
    answer: Callable[[dict[str, Any]], Reply] | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def play(self, *replies: Reply) -> None:
        """Replace the script."""
        self.script[:] = replies

    def reply(self, body: dict[str, Any]) -> Reply:
        """What a request is answered with."""
        if self.answer is not None:
            return self.answer(body)
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]


def sse(name: str, data: dict[str, Any]) -> bytes:
    """A server-sent event; without a name only its data."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


@contextmanager
def scripted() -> Iterator[Scripted]:
    """A server on a free port until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    state = Scripted(f"http://127.0.0.1:{server.server_port}", [])
    server.state = state  # type: ignore[attr-defined]
    server.stopping = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.stopping.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        state: Scripted = self.server.state  # type: ignore[attr-defined]
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        state.raw.append(raw)
        body = json.loads(raw)
        state.bodies.append(body)
        state.paths.append(self.path)
        state.headers.append({name.lower(): value for name, value in self.headers.items()})
        reply = state.reply(body)
        if reply.status != 200:
            payload = json.dumps(reply.body).encode()
            self.send_response(reply.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for name, data in reply.events:
                self._chunk(sse(name, data))
        except ConnectionError:  # the caller left
            self.close_connection = True
            return
        if reply.hang:
            self.server.stopping.wait()  # type: ignore[attr-defined]
        if reply.cut or reply.hang:
            self.close_connection = True
        else:
            self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def log_message(self, *args: Any) -> None:
        """Tests want no access log."""

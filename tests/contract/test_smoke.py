"""What the smoke test does not let pass: answers that are broken in one way each, and events that are not in the log."""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import logging

from common import log
from local import smoke
from tests.stubs.logging_server import LoggingServer

GOOD: list[Any] = [
    {"type": "start", "messageId": "m", "messageMetadata": {"conversation_id": "c"}},
    {"type": "tool-output-available", "toolCallId": "t", "output": {}},
    {"type": "text-delta", "id": "1", "delta": "You have 4."},
    {"type": "finish", "messageMetadata": {"status": "complete", "model": "m", "provider": "claude"}},
]


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        if raw := getattr(self.server, "raw", b""):
            self.wfile.write(raw)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.stream)  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        self.server.followed = self.headers["Authorization"]  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"items": [{"message_id": "another", "tool_name": "t"}]}')

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[http.server.ThreadingHTTPServer]:
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def answer(server: Any, chunks: list[Any], ending: str = "data: [DONE]\n\n") -> str:
    """Have the server stream these chunks; its address."""
    server.stream = ("".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + ending).encode()
    return f"http://127.0.0.1:{server.server_port}"


def test_a_whole_answer_passes(server: Any) -> None:
    turn = smoke.converse(answer(server, GOOD), "t")
    assert (turn.conversation_id, turn.message_id, turn.model, turn.characters) == ("c", "m", "m", 11)


@pytest.mark.parametrize(
    ("chunks", "ending", "says"),
    [
        (GOOD, "", "ended before the answer did"),
        (GOOD[:3], "data: [DONE]\n\n", "ended before the answer did"),
        ([*GOOD[:3], {"type": "error", "errorText": "No."}], "data: [DONE]\n\n", "with an error: No."),
        (
            [*GOOD[:3], {"type": "finish", "messageMetadata": {"status": "interrupted"}}],
            "data: [DONE]\n\n",
            "ended before the answer did",
        ),
        ([*GOOD[:2], GOOD[3]], "data: [DONE]\n\n", "complete and empty"),
        ([GOOD[0], *GOOD[2:]], "data: [DONE]\n\n", "without a tool's result"),
    ],
)
def test_a_broken_answer_does_not(server: Any, chunks: list[Any], ending: str, says: str) -> None:
    with pytest.raises(smoke.SmokeFailed, match=says):
        smoke.converse(answer(server, chunks, ending), "t")


def test_a_snapshot_of_another_turn_does_not_count(server: Any) -> None:
    url = answer(server, GOOD)
    with pytest.raises(smoke.SmokeFailed, match="No snapshot of the turn after 0 s"):
        smoke.find_snapshot(url, "t", smoke.converse(url, "t"), 0.001)


TURN = smoke.Turn("c", "m", "a" * 32, datetime.now(UTC), "model", 11)


@pytest.fixture
def stored() -> Iterator[LoggingServer]:
    with LoggingServer() as running:
        yield running


@pytest.fixture
def client(stored: LoggingServer) -> Any:
    """The real client, by REST."""
    return logging.Client(
        project="p",
        credentials=AnonymousCredentials(),
        _use_grpc=False,
        client_options={"api_endpoint": stored.url},
    )


def write(stored: LoggingServer, *events: str, outcome: str = "complete") -> None:
    """Have these events logged as our code logs them, those of a turn under its trace."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for event in events:
            log.set_trace({"logging.googleapis.com/trace": TURN.trace} if event in smoke.TURN_EVENTS else {})
            log.emit(event, outcome=outcome)
    log.set_trace({})
    for line in printed.getvalue().splitlines():
        stored.take(line)


def test_every_event_of_the_turn_is_read_back_with_the_revision_that_wrote_it(
    stored: LoggingServer, client: Any
) -> None:
    write(stored, *smoke.TURN_EVENTS, smoke.SNAPSHOT_EVENT)
    assert smoke.read_events(client, TURN, 60) == "chat-00002-new"


@pytest.mark.parametrize(
    ("turn", "missing"),
    [
        (replace(TURN, trace="0" * 32), "llm_cost_usd, time_to_first_token_ms, turn_latency_ms, turns_total"),
        (
            replace(TURN, began=TURN.began + timedelta(days=1)),
            f"llm_cost_usd, time_to_first_token_ms, {smoke.SNAPSHOT_EVENT}, turn_latency_ms, turns_total",
        ),
    ],
    ids=["another turn's", "before it"],
)
def test_events_that_are_not_this_turns_do_not_count(
    stored: LoggingServer, client: Any, turn: smoke.Turn, missing: str
) -> None:
    write(stored, *smoke.TURN_EVENTS, smoke.SNAPSHOT_EVENT)
    with pytest.raises(smoke.SmokeFailed, match=f"Not in the log after 0 s: {missing}"):
        smoke.read_events(client, turn, 0.001)


def test_a_turn_that_the_log_calls_failed_does_not_pass(stored: LoggingServer, client: Any) -> None:
    write(stored, *smoke.TURN_EVENTS, smoke.SNAPSHOT_EVENT, outcome="failed")
    with pytest.raises(smoke.SmokeFailed, match="not completed"):
        smoke.read_events(client, TURN, 60)


def test_a_log_that_may_not_be_read_is_said(stored: LoggingServer, client: Any) -> None:
    stored.down = True
    with pytest.raises(smoke.SmokeFailed, match="Cloud Logging cannot be read: Forbidden"):
        smoke.read_events(client, TURN, 60)


@pytest.mark.parametrize(
    "stream",
    [
        b"<html>Sign in</html>",
        b"\xff\xfe\x00",
        b"data: {broken\n\n",
        b'data: {"no": "type"}\n\n',
        b'data: {"type": "start", "messageMetadata": 7}\n\ndata: [DONE]\n\n',
    ],
    ids=["a page", "no text", "no JSON", "a chunk of no type", "no metadata"],
)
def test_garbage_is_one_clear_line(server: Any, stream: bytes) -> None:
    server.stream = stream
    with pytest.raises(smoke.SmokeFailed):
        smoke.converse(f"http://127.0.0.1:{server.server_port}", "token")


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\ncut off",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["no HTTP", "too short", "no chunks"],
)
def test_what_is_no_http_is_one_clear_line(server: Any, raw: bytes) -> None:
    server.raw = raw
    with pytest.raises(smoke.SmokeFailed):
        smoke.converse(f"http://127.0.0.1:{server.server_port}", "token")


def test_the_token_follows_no_redirect(server: Any) -> None:
    server.raw = (
        f"HTTP/1.1 302 Found\r\nLocation: http://localhost:{server.server_port}/elsewhere\r\n\r\n".encode()
    )
    server.followed = None
    with pytest.raises(smoke.SmokeFailed, match="302"):
        smoke.converse(f"http://127.0.0.1:{server.server_port}", "token")
    assert server.followed is None

"""What the smoke test does not let pass: answers that are broken in one way each."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from local import smoke

GOOD: list[Any] = [
    {"type": "start", "messageId": "m", "messageMetadata": {"conversation_id": "c"}},
    {"type": "tool-output-available", "toolCallId": "t", "output": {}},
    {"type": "text-delta", "id": "1", "delta": "You have 4."},
    {"type": "finish", "messageMetadata": {"status": "complete", "model": "m", "provider": "claude"}},
]


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.stream)  # type: ignore[attr-defined]

    def do_GET(self) -> None:
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

"""`memberintel smoke` on the running system, whose own lines are what Cloud Logging's stand-in gives back."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import logging

from local import cli, smoke
from tests.e2e.conftest import Running
from tests.stubs.logging_server import LoggingServer

OWNER = "owner@demo.example"


@pytest.fixture(scope="module")
def written(running: Running) -> Iterator[LoggingServer]:
    """What the running system prints, from now on."""
    with LoggingServer() as server:

        def read() -> None:
            assert running.process.stdout is not None
            for line in running.process.stdout:
                server.take(line)

        threading.Thread(target=read, daemon=True).start()
        yield server


@pytest.fixture
def log(written: LoggingServer, monkeypatch: pytest.MonkeyPatch) -> LoggingServer:
    client = logging.Client(
        project="p",
        credentials=AnonymousCredentials(),
        _use_grpc=False,
        client_options={"api_endpoint": written.url},
    )
    monkeypatch.setattr(smoke, "logging_client", lambda project: client)
    return written


def run(running: Running, *more: str) -> int:
    arguments = ["smoke", "--url", f"http://127.0.0.1:{running.port}", "--data", str(running.data)]
    return cli.main([*arguments, *more])


def test_the_whole_way_is_gone_and_nothing_is_left_of_it(
    running: Running, log: LoggingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(running, "--project", "p") == 0, capsys.readouterr().err
    answer, snapshot, logged, last = capsys.readouterr().out.splitlines()
    assert answer.endswith("by offline-1")
    assert snapshot == "snapshot: query_kpi_trend"
    assert logged == "log: every event of the turn, written by chat-00002-new"
    assert last == "The system answers."
    status, talks = running.call("GET", "/v1/conversations", token=running.token(OWNER))
    assert (status, talks["items"]) == (200, [])


class _Issuer(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"]))
        good = form == b"grant_type=refresh_token&refresh_token=r"
        self.send_response(200 if good else 401)
        self.end_headers()
        self.wfile.write(json.dumps({"id_token": self.server.token}).encode())  # type: ignore[attr-defined]

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def issuer(running: Running) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Issuer)
    server.token = running.token(OWNER)  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"grant_type": "refresh_token", "refresh_token": "r"}, ""),
        ({"grant_type": "refresh_token", "refresh_token": "old"}, "The issuer answered 401"),
        (None, "holds no `token_url` and `form`"),
    ],
)
def test_the_smoke_user_signs_in_as_the_issuer_asks(
    running: Running,
    issuer: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    form: Any,
    says: str,
) -> None:
    file = tmp_path / "smoke.json"
    file.write_text(json.dumps({"token_url": issuer} | ({"form": form} if form else {})))
    assert run(running, "--no-logs", "--sign-in", str(file)) == (1 if says else 0)
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == (1 if says else 0)


def test_a_stranger_and_a_system_that_is_not_there_are_one_clear_line(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(running, "--no-logs", "--user", "stranger@demo.example") == 1
    assert capsys.readouterr().err.startswith("memberintel smoke: POST /chat answered 40")
    assert cli.main(["smoke", "--url", "http://127.0.0.1:1", "--no-logs", "--data", str(running.data)]) == 1
    assert (
        capsys.readouterr().err
        == "memberintel smoke: POST /chat cannot be reached: [Errno 111] Connection refused.\n"
    )

"""The whole local stack, started as a user starts it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Running:
    """A running system and its data folder."""

    data: Path
    port: int
    process: subprocess.Popen[str]
    console: str

    def command(
        self, *arguments: str, check: bool = True, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return command(self.data, *arguments, check=check, input=input)

    def token(self, email: str) -> str:
        return self.command("token", "--user", email).stdout.strip()

    def call(
        self, method: str, path: str, body: Any = None, *, token: str = "", accept: str = "application/json"
    ) -> tuple[int, Any]:
        """Status and body, the body as JSON where it is."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Content-Type": "application/json",
                "Accept": accept,
                "Authorization": f"Bearer {token}",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                status, raw, kind = response.status, response.read(), response.headers.get_content_type()
        except urllib.error.HTTPError as exc:
            status, raw, kind = exc.code, exc.read(), exc.headers.get_content_type()
        return status, json.loads(raw) if kind.endswith("json") else raw.decode()

    def chat(self, message: str, *, token: str, **more: Any) -> Any:
        status, answer = self.call("POST", "/chat", {"message": message, **more}, token=token)
        assert status == 200, answer
        return answer

    def stop(self, how: signal.Signals = signal.SIGINT) -> str:
        """Stop it; returns what it printed."""
        self.process.send_signal(how)
        return self.process.communicate(timeout=30)[0]


def command(
    data: Path, *arguments: str, check: bool = True, input: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `memberintel` on a data folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MEMBERINTEL_REQUESTS_PER_MINUTE": "100000"}
    done = subprocess.run(
        [sys.executable, "-m", "local.cli", *arguments, "--data", str(data)],
        capture_output=True, text=True, env=environment, cwd=ROOT, input=input, timeout=300, check=False,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def start(data: Path, *more: str) -> Running:
    """Start the system and wait for the address that it prints."""
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MEMBERINTEL_REQUESTS_PER_MINUTE": "100000"}
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "local.cli", "run", "--data", str(data), "--port", str(port), *more],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=ROOT,
    )  # fmt: skip
    printed = []
    assert process.stdout is not None
    for line in process.stdout:
        printed.append(line)
        if found := re.search(r"Open (http\S+)", line):
            return Running(data, port, process, found.group(1))
    raise AssertionError("did not start:\n" + "".join(printed))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    data = tmp_path_factory.mktemp("data")
    data.chmod(0o755)
    system = start(data)
    yield system
    if system.process.poll() is None:
        system.stop()

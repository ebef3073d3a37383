"""Functions as the cloud runs them: unpacked into an empty folder, under the framework's own command and server, each in a process."""

from __future__ import annotations

import contextlib
import http.server
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from local import package
from local.issuer import Issuer
from tests.conftest import Database
from tests.contract import image
from tests.e2e.conftest import free_port

T = TypeVar("T")


@dataclass
class Deployed:
    """A running function, and what it has written to standard output."""

    port: int
    process: subprocess.Popen[bytes]
    _log: Path

    @property
    def log(self) -> str:
        return self._log.read_text()

    def stop(self) -> None:
        """Ask it to end, as the platform does."""
        self.process.send_signal(signal.SIGTERM)


class _Keys(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.keys)  # type: ignore[attr-defined]

    def log_message(self, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def trusted(folder: Path) -> Iterator[tuple[Issuer, str]]:
    """An issuer with its key in `folder`, and the address where its public keys are served."""
    made = Issuer(folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Keys)
    server.keys = made.jwks.read_bytes()  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made, f"http://127.0.0.1:{server.server_port}/jwks.json"
    finally:
        server.shutdown()
        server.server_close()


def settings(database: Database, trust: tuple[Issuer, str], **more: str) -> dict[str, str]:
    """The environment of a function on `database` that trusts this issuer."""
    issuer, keys = trust
    return {
        **issuer.settings(keys),
        "MEMBERINTEL_DATABASE_URL": database.server.url(database.name),
        "MEMBERINTEL_EMBEDDING_MODEL": "hashed",
        **more,
    }


@contextlib.contextmanager
def deployed(name: str, folder: Path, environment: dict[str, str]) -> Iterator[Deployed]:
    """The function `name` until the block ends: from its archive alone, or where it is a service from the image."""
    port = free_port()
    given = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "FUNCTION_TARGET": "main",
        **environment,
    }
    if name in package.FUNCTIONS:
        source, command = folder / name, [sys.executable, "-m", "functions_framework"]
        shutil.unpack_archive(package.archive(name, folder / "archives"), source)
        # Neither the repository nor what is pinned for a laptop may be what makes it run.
        clean = image.hide(folder / "clean", "local", "functions", "evals", "tests", *image.LOCAL_MODULES)
        given["PYTHONPATH"] = str(clean)
    else:
        made = image.shared()
        source, command = made.app, [str(made.root / "venv/bin/python"), *made.command[1:]]
        given = {**made.environment, **given, "FUNCTION_SOURCE": f"functions/{name}/main.py"}
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=source, env=given, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        running = Deployed(port, process, folder / f"{name}.log")
        try:
            until(lambda: _answers(running), 120)
            yield running
        finally:
            running.stop()
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(running: Deployed) -> bool:
    assert running.process.poll() is None, running.log
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", running.port), timeout=1):
        return True
    return False


def until(check: Callable[[], T], seconds: float = 60) -> T:
    """What `check` gives once it is true: polls for what another process does; a limit, not a measurement."""
    deadline = time.monotonic() + seconds
    while not (value := check()):
        assert time.monotonic() < deadline, "never came"
        time.sleep(0.05)
    return value

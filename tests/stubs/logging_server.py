"""A server that speaks as much of Cloud Logging's REST interface as the smoke test uses: it lists the entries that a filter selects."""

from __future__ import annotations

import http.server
import json
import threading
from datetime import UTC, datetime
from typing import Any

from tests.contract.log_metrics import read_entry, read_filter


class LoggingServer:
    """Takes the lines that a process prints, as Cloud Run does, and answers queries; `down` refuses them."""

    def __init__(self, project: str = "p") -> None:
        self.entries: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.down = False
        self._project = project
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.log = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> LoggingServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, line: str) -> None:
        """One printed line; what is no JSON object is no entry of ours."""
        if not line.startswith("{"):
            return
        entry = read_entry(line, "chat")
        entry["resource"]["labels"]["revision_name"] = "chat-00002-new"
        entry["timestamp"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        entry["logName"] = f"projects/{self._project}/logs/run.googleapis.com%2Fstdout"
        if "trace" in entry:  # on a laptop there is no project to name
            entry["trace"] = f"projects/{self._project}/traces/{entry['trace'].rsplit('/', 1)[-1]}"
        self.entries.append(entry)

    def select(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        """The entries for an `entries:list` call."""
        assert query["resourceNames"] == [f"projects/{self._project}"]
        self.asked.append(query)
        wanted = read_filter(query["filter"])
        return [entry for entry in list(self.entries) if wanted(entry)]


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert self.path.startswith("/v2/entries:list"), self.path
        log: LoggingServer = self.server.log  # type: ignore[attr-defined]
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"entries": log.select(query)}).encode()
        self.send_response(403 if log.down else 200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}" if log.down else body)

    def log_message(self, *arguments: object) -> None:
        pass

"""A server that speaks as much of Cloud Storage's JSON interface as the ledger uses: read an object, write it if its generation matches."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable
from urllib.parse import parse_qs, unquote, urlsplit


class StorageServer:
    """One object a name. `before_write` is called as a write arrives, to let another writer be faster; `down` refuses everything."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.before_write: Callable[[], None] = lambda: None
        self.down = False
        self.reads = 0
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.storage = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> StorageServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def storage(self) -> StorageServer:
        return self.server.storage  # type: ignore[attr-defined,no-any-return]

    def do_GET(self) -> None:
        if "/o/" not in self.path:  # the client is curious about the bucket, and our roles may not look at it
            self._answer(403, b"{}")
            return
        self.storage.reads += 1
        name = unquote(urlsplit(self.path).path.split("/o/", 1)[1])
        content, generation = self.storage.objects.get(name, (b"", 0))
        if self.storage.down:
            self._answer(403, b"{}")
        elif not generation:
            self._answer(404, b"{}")
        else:
            self._answer(200, content, generation)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.storage.before_write()
        query = parse_qs(urlsplit(self.path).query)
        assert query["uploadType"] == ["multipart"]
        boundary = self.headers["Content-Type"].split("boundary=")[1].strip("\"'").encode()
        described, content = [
            part.split(b"\r\n\r\n", 1)[1].removesuffix(b"\r\n") for part in body.split(b"--" + boundary)[1:3]
        ]
        name = json.loads(described)["name"]
        _, generation = self.storage.objects.get(name, (b"", 0))
        if self.storage.down:
            self._answer(403, b"{}")
        elif int(query["ifGenerationMatch"][0]) != generation:
            self._answer(412, b"{}")
        else:
            self.storage.objects[name] = content, generation + 1
            self._answer(200, json.dumps({"name": name, "generation": str(generation + 1)}).encode())

    def _answer(self, status: int, body: bytes, generation: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if generation:
            self.send_header("X-Goog-Generation", str(generation))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass

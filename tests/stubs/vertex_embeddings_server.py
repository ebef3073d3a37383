"""A stand-in for the embedding endpoints of Vertex AI: it records what it is asked and answers with vectors made from the texts."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class VertexStub:
    """`requests` are (path, body) as received. `failures` are status codes for the next answers. `dimensions` overrides what was
    asked for."""

    url: str = ""
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    dimensions: int | None = None

    def vector(self, text: str, dimensions: int) -> list[float]:
        """What stands for the embedding of `text`: not of length 1, as shortened vectors are not."""
        return [float(len(text)), 3.0] + [0.0] * ((self.dimensions or dimensions) - 2)


@contextlib.contextmanager
def vertex_embeddings_server() -> Iterator[VertexStub]:
    """The stand-in on a free port of this machine, until the block ends."""
    stub = VertexStub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            stub.requests.append((self.path, body))
            stub.authorizations.append(self.headers["Authorization"])
            if stub.failures:
                self._answer(
                    stub.failures.pop(0),
                    {"error": {"code": 503, "message": "try later", "status": "UNAVAILABLE"}},
                )
            else:
                self._answer(200, _answer(stub, self.path, body))

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()


def _answer(stub: VertexStub, path: str, body: dict[str, Any]) -> dict[str, Any]:
    if path.endswith(":predict"):
        size = body["parameters"]["outputDimensionality"]
        vectors = [stub.vector(instance["content"], size) for instance in body["instances"]]
        return {"predictions": [{"embeddings": {"values": vector}} for vector in vectors]}
    text = "".join(part["text"] for part in body["content"]["parts"])
    size = body.get("embedContentConfig", body).get("outputDimensionality", 768)
    return {"embedding": {"values": stub.vector(text, size)}}

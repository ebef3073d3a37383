"""Round trips, counted on the wire: a proxy in front of the server's socket that reads the protocol's messages as they pass.

A round trip is over when the server has answered all that the client had asked: each Sync and each simple Query by a ReadyForQuery.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

_SSL = struct.pack("!ii", 8, 80877103)


class Wire:
    """What has passed so far. `round_trips` may be set back to zero between turns."""

    def __init__(self) -> None:
        self.round_trips = 0

    def answered(self) -> None:
        """All that was asked is answered."""
        self.round_trips += 1


class _Messages:
    """The types of the messages in one direction, as their bytes come in."""

    def __init__(self, startup: bool) -> None:
        self._bytes = b""
        self._startup = startup  # the client's first message has no type

    def take(self, data: bytes) -> Iterator[bytes]:
        self._bytes += data
        while len(self._bytes) >= 5:
            at = 0 if self._startup else 1
            (length,) = struct.unpack_from("!i", self._bytes, at)
            if len(self._bytes) < at + length:
                return
            kind = b"" if self._startup else self._bytes[:1]
            self._bytes, self._startup = self._bytes[at + length :], False
            yield kind


@contextlib.contextmanager
def counted(server: Path) -> Iterator[tuple[Path, Wire]]:
    """A socket that leads to `server`, PostgreSQL's own, and what passes through it."""
    wire = Wire()
    with tempfile.TemporaryDirectory(prefix="wire-") as folder, socket.socket(socket.AF_UNIX) as listener:
        path = Path(folder) / server.name
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=_accept, args=(listener, server, wire), daemon=True).start()
        yield path, wire
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, server: Path, wire: Wire) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_pass_on, args=(client, server, wire), daemon=True).start()


def _pass_on(client: socket.socket, server: Path, wire: Wire) -> None:
    asked, answers = _Messages(startup=True), _Messages(startup=False)
    outstanding = 1  # the startup is answered by a ReadyForQuery too
    with client, socket.socket(socket.AF_UNIX) as upstream, contextlib.suppress(OSError):
        upstream.connect(str(server))
        if client.recv(len(_SSL), socket.MSG_PEEK) == _SSL:
            client.recv(len(_SSL))
            client.sendall(b"N")  # what the server says on this kind of socket
        while True:
            readable, _, _ = select.select([client, upstream], [], [])
            # The client first: what it sent in one go is one question, even when the server is quick with the first part.
            if client in readable:
                data = client.recv(1 << 20)
                if not data:
                    return
                outstanding += sum(kind in (b"Q", b"S") for kind in asked.take(data))
                upstream.sendall(data)
            elif data := upstream.recv(1 << 20):
                ready = sum(kind == b"Z" for kind in answers.take(data))
                outstanding -= ready
                if ready and outstanding == 0:
                    wire.answered()
                client.sendall(data)
            else:
                return

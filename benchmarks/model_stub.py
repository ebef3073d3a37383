"""A stand-in for the Messages API in a process of its own: the first token after a wait, the others spread over a time.

    python -m benchmarks.model_stub [--first MS] [--seconds S] [--deltas N]

Prints its address. Every question gets the same answer; the stub reads nothing of it and keeps nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

from tests.stubs.anthropic_server import message
from tests.stubs.scripted import sse


def answer(deltas: int) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """The bytes on the wire: what comes before the text, the text's deltas, and the end."""
    events = message({"type": "text", "text": " ".join(["word"] * deltas)}).events
    parts = [(data["type"] == "content_block_delta", _chunk(sse(name, data))) for name, data in events]
    first = next(at for at, (is_delta, _) in enumerate(parts) if is_delta)
    return (
        [part for _, part in parts[:first]],
        [part for is_delta, part in parts if is_delta],
        [part for is_delta, part in parts[first:] if not is_delta] + [_chunk(b"")],
    )


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def serve(first: float, seconds: float, deltas: int) -> None:
    """Answer until the process ends."""
    opening, text, closing = answer(deltas)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(request.partition(b"content-length:")[2].split(b"\r\n")[0])
                await reader.readexactly(length)
                await asyncio.sleep(first)
                writer.write(head + b"".join(opening) + text[0])
                if not seconds:
                    writer.write(b"".join(text[1:]))
                for delta in text[1:] if seconds else ():
                    await asyncio.sleep(seconds / len(text))
                    writer.write(delta)
                writer.write(b"".join(closing))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, backlog=256)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def running(first_ms: float = 0, seconds: float = 0, deltas: int = 20) -> Iterator[str]:
    """The address of a stub, until the block ends."""
    command = [
        sys.executable, "-m", "benchmarks.model_stub",
        "--first", str(first_ms), "--seconds", str(seconds), "--deltas", str(deltas),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=float, default=0, help="milliseconds to the first token")
    parser.add_argument("--seconds", type=float, default=0, help="from the first to the last")
    parser.add_argument("--deltas", type=int, default=20)
    asked = parser.parse_args()
    asyncio.run(serve(asked.first / 1000, asked.seconds, asked.deltas))

"""The ledger of erasures: who was erased and when, kept outside the database, so that no backup of it can bring anybody back.

A file or an object in Cloud Storage, of JSON lines: the first holds the salt, every other a salted hash of issuer and subject with the
time. The only module that imports the storage client.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Hashable
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from common import log
from common.config import Settings
from common.errors import ConfigError, Unavailable
from common.once import once

READ_AGAIN_SECONDS = 60.0
ATTEMPTS = 5


class Store(Protocol):
    """Where the lines are. `state` is a cheap sign that changes with them; None where only reading tells."""

    def state(self) -> Hashable | None: ...

    def read(self) -> bytes: ...

    def extend(self, more: Callable[[bytes], bytes]) -> None:
        """Append what `more` makes of the present content; durable on return, and nobody else's lines are lost."""


class Ledger:
    """The ledger with what this process last read of it."""

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: tuple[str, dict[str, datetime]] | None = None
        self._state: Hashable | None = None
        self._read_at = 0.0

    def add(self, issuer: str, subject: str, at: datetime) -> None:
        """Note that this identity was erased at `at`. Raises Unavailable."""

        def more(content: bytes) -> bytes:
            salt, _ = _parse(content)
            lines = [] if salt else [{"salt": (salt := secrets.token_hex(16))}]
            lines.append({"who": _hash(salt, issuer, subject), "erased_at": at.isoformat()})
            start = b"\n" if content and not content.endswith(b"\n") else b""
            return start + "".join(json.dumps(line) + "\n" for line in lines).encode()

        with _reachable():
            self._store.extend(more)
        with self._lock:
            self._known = None

    def erased_at(self, issuer: str, subject: str, *, fresh: bool = False) -> datetime | None:
        """When this identity was last erased, as of at most a minute ago, or as of now if `fresh`; None if it never was. Raises
        Unavailable where the ledger was never read and cannot be."""
        salt, entries = self._entries(fresh)
        return entries.get(_hash(salt, issuer, subject)) if entries else None

    def _entries(self, fresh: bool) -> tuple[str, dict[str, datetime]]:
        with self._lock:
            if fresh or self._known is None or self._is_old():
                try:
                    with _reachable():
                        self._state = self._store.state()
                        self._known = _parse(self._store.read())
                        self._read_at = self._monotonic()
                except Unavailable:
                    if fresh or self._known is None:
                        raise
                    log.write("the erasure ledger cannot be read", severity="ERROR")
            return self._known

    def _is_old(self) -> bool:
        state = self._store.state()
        if state is not None:
            return state != self._state
        return self._monotonic() - self._read_at >= READ_AGAIN_SECONDS


def _hash(salt: str, issuer: str, subject: str) -> str:
    return hmac.new(salt.encode(), f"{issuer}\0{subject}".encode(), hashlib.sha256).hexdigest()


def _parse(content: bytes) -> tuple[str, dict[str, datetime]]:
    """The salt and each identity's last erasure. A line that cannot be read is reported and passed over."""
    salt, entries = "", dict[str, datetime]()
    for line in content.splitlines():
        try:
            read: dict[str, Any] = json.loads(line)
            if "salt" in read:
                salt = str(read["salt"])
            else:
                who, at = str(read["who"]), datetime.fromisoformat(read["erased_at"])
                entries[who] = max(at, entries.get(who, at))
        except (KeyError, TypeError, ValueError):
            log.write("a line of the erasure ledger cannot be read", severity="ERROR")
    return salt, entries


@contextlib.contextmanager
def _reachable() -> Any:
    """Whatever the store raises is Unavailable."""
    try:
        yield
    except Exception as exc:
        raise Unavailable("The ledger of erasures cannot be reached right now.") from exc


class FileStore:
    """A file, made on the first entry."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def state(self) -> Hashable | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return "none"
        return found.st_mtime_ns, found.st_size, found.st_ino

    def read(self) -> bytes:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""

    def extend(self, more: Callable[[bytes], bytes]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(more(file.read() or b""))
            os.fsync(file.fileno())


class ObjectStore:
    """An object in Cloud Storage: read whole, written whole on the condition that nobody wrote meanwhile."""

    def __init__(self, bucket: str, name: str) -> None:
        from google.cloud import storage  # type: ignore[attr-defined]

        self._bucket = storage.Client().bucket(bucket)
        self._name = name

    def state(self) -> Hashable | None:
        return None

    def read(self) -> bytes:
        return self._present()[0]

    def extend(self, more: Callable[[bytes], bytes]) -> None:
        from google.api_core.exceptions import PreconditionFailed

        for attempt in range(1, ATTEMPTS + 1):
            content, generation = self._present()
            try:
                self._bucket.blob(self._name).upload_from_string(
                    content + more(content),
                    content_type="application/jsonl",
                    if_generation_match=generation,
                    timeout=10,
                )
                return
            except PreconditionFailed:
                if attempt == ATTEMPTS:
                    raise

    def _present(self) -> tuple[bytes, int]:
        """The content and its generation; 0 where there is no object."""
        from google.api_core.exceptions import NotFound

        blob = self._bucket.blob(self._name)
        try:
            return blob.download_as_bytes(timeout=10), int(blob.generation or 0)
        except NotFound:
            return b"", 0


@once
def _ledger(location: str) -> Ledger:
    if not location.startswith("gs://"):
        return Ledger(FileStore(Path(location)))
    bucket, _, name = location.removeprefix("gs://").partition("/")
    if not (bucket and name):
        raise ConfigError("MEMBERINTEL_ERASURE_LEDGER reads `gs://bucket/object` or is a path.")
    return Ledger(ObjectStore(bucket, name))


def ledger(config: Settings) -> Ledger | None:
    """This process's ledger, made on first use; None where the settings name none."""
    return _ledger(config.erasure_ledger) if config.erasure_ledger else None

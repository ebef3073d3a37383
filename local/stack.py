"""A data folder opened for use: its PostgreSQL running and migrated, its issuer, and the settings that point at both.

Where the environment names a database (`MEMBERINTEL_DATABASE_URL` or a Cloud SQL instance), that is used and nothing is started.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from common import db
from common.config import settings
from common.migrations import run as migrations
from local import postgres
from local.issuer import Issuer

DEFAULT_DATA = Path(".data")
ERASURE_LEDGER = "erasures.jsonl"


@dataclass(frozen=True)
class Stack:
    """An open data folder; `server` is None for a database elsewhere."""

    folder: Path
    issuer: Issuer
    server: postgres.Server | None


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Stack]:
    """The stack of `folder`, with the process's settings pointing at it. The server stops with its last user."""
    folder.mkdir(parents=True, exist_ok=True)
    issuer = Issuer(folder)
    os.environ.setdefault("MEMBERINTEL_ERASURE_LEDGER", str(folder / ERASURE_LEDGER))
    if os.environ.get("MEMBERINTEL_DATABASE_URL") or os.environ.get("MEMBERINTEL_CLOUD_SQL_INSTANCE"):
        yield Stack(folder, issuer, None)
        return
    with postgres.server(folder) as running:
        os.environ["MEMBERINTEL_DATABASE_URL"] = running.url()
        settings.cache_clear()
        db.engine.cache_clear()
        try:
            with postgres.exclusively(running.folder):
                postgres.create_database(running)
                bring_up_to_date()
            yield Stack(folder, issuer, running)
        finally:
            os.environ.pop("MEMBERINTEL_DATABASE_URL", None)


def bring_up_to_date() -> bool:
    """Apply missing migrations; returns whether there were any."""
    owner = db.engine("owner")
    if migrations.current(owner) == migrations.head():
        return False
    migrations.migrate(owner)
    return True


def now() -> datetime:
    """The clock, for commands: everything below takes the time as an argument."""
    return datetime.now(UTC)

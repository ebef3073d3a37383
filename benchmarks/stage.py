"""Where the benchmarks of a turn play: a throw-away server that is as careful as a real one (fsync on), and what is read from it."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from common.config import Settings
from common.db import make_engine
from common.migrations import run as migrations
from local import postgres

_LOGGED = re.compile(r"LOG:  (?:statement|execute [^:]+):\s+(\w+)([^\n]*)")
_CONTROL = ("begin", "commit", "rollback", "savepoint", "release")


@dataclass
class Stage:
    """A migrated database, and the superuser's view of its server."""

    server: postgres.Server
    superuser: sa.Engine
    database: str = postgres.DATABASE

    def wal_bytes(self) -> int:
        """How much was ever written to the write-ahead log."""
        with self.superuser.connect() as connection:
            lsn = connection.scalar(sa.text("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"))
        return int(lsn)

    def server_cpu(self) -> float:
        """Seconds of CPU that the server's present processes have used."""
        leader = (self._cluster() / "postmaster.pid").read_text().split("\n", 1)[0]
        children = Path(f"/proc/{leader}/task/{leader}/children").read_text().split()
        used = 0.0
        for process in children:
            with contextlib.suppress(OSError):  # gone meanwhile
                used += int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9
        return used

    @contextlib.contextmanager
    def logged(self, role: str = "memberintel_app") -> Iterator[Callable[[], list[str]]]:
        """A function that returns the statements which reached the server since it was last asked, each by its first word and the rest of
        that line. Only sessions of `role` that start within the block are logged. For counting, never while time is measured."""
        log = self.server.folder / "postgres.log"
        seen = log.stat().st_size

        def since() -> list[str]:
            nonlocal seen
            with log.open("rb") as lines:
                lines.seek(seen)
                text = lines.read()
                seen = lines.tell()
            return [f"{word}{rest}" for word, rest in _LOGGED.findall(text.decode(errors="replace"))]

        self._run(f"alter role {role} in database {self.database} set log_statement = 'all'")
        yield since
        self._run(f"alter role {role} in database {self.database} reset log_statement")

    def settle(self, database: str = "") -> None:
        """Have it counted what is in a database, as autovacuum does in time. All statements are planned anew after that."""
        engine = sa.create_engine(self.server.url(database or self.database), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text("vacuum analyze"))
        engine.dispose()

    @contextlib.contextmanager
    def in_a_hurry(self) -> Iterator[None]:
        """Commits wait for no disk within the block: to prepare what is then measured with care."""
        self._set("alter system set synchronous_commit = off")
        yield
        self._set("alter system reset synchronous_commit")
        time.sleep(0.5)  # every session has heard of it

    def _set(self, change: str) -> None:
        with self.superuser.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text(change))
            connection.execute(sa.text("select pg_reload_conf()"))

    def _run(self, sql: str) -> None:
        with self.superuser.begin() as connection:
            connection.execute(sa.text(sql))

    def _cluster(self) -> Path:
        with self.superuser.connect() as connection:
            return Path(str(connection.scalar(sa.text("show data_directory"))))


def is_control(statement: str) -> bool:
    """Whether a logged statement only begins, ends or marks a transaction, or sets something for it."""
    return statement.lower().startswith((*_CONTROL, "select set_config"))


@contextlib.contextmanager
def stage() -> Iterator[Stage]:
    """A server with a migrated database, until the block ends."""
    with postgres.throw_away(durable=True) as server:
        postgres.create_database(server)
        migrations.migrate(make_engine(Settings(database_url=server.url()), "owner"))
        superuser = sa.create_engine(server.url())
        yield Stage(server, superuser)
        superuser.dispose()

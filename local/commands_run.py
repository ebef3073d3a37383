"""`run`, `token`, `trigger`, `migrate`, `database-url`: starting the system and calling it."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

import sqlalchemy as sa

from common import auth, db, warm_up
from common.config import Settings, settings
from common.errors import AppError
from common.knowledge import ingest
from common.knowledge.embeddings import embedder
from common.llm import call as llm
from common.migrations.roles import make_roles
from common.text import to_json
from local import demo, postgres
from local.app import ACCESS_PATH, JWKS_PATH, LocalApp, LocalServer, function_names
from local.dispatcher import SCHEDULE, Dispatcher
from local.issuer import FILES as ISSUER_FILES
from local.issuer import ISSUER, Issuer
from local.sign_in import AUTHORIZE_PATH, TOKEN_PATH
from local.stack import ERASURE_LEDGER, Stack, bring_up_to_date, now, opened

DEFAULT_PORT = 8080


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The subcommands of this group."""
    run = subparsers.add_parser("run", help="start the whole system on the embedded PostgreSQL")
    run.add_argument(
        "--port",
        type=port_number,
        default=DEFAULT_PORT,
        help="port of the one address (default: %(default)s)",
    )
    run.add_argument("--fresh", action="store_true", help="delete the local data first")
    run.add_argument(
        "--quiet-minutes", type=float, help="quiet time after which a session ends (default: 30)"
    )
    run.set_defaults(run=run_system)

    token = subparsers.add_parser("token", help="a token of the local issuer for a user")
    whose = token.add_mutually_exclusive_group(required=True)
    whose.add_argument("--user", metavar="EMAIL", help="a customer's")
    whose.add_argument("--admin", action="store_true", help="the address that signs in to the admin's report")
    token.add_argument("--port", type=int, default=DEFAULT_PORT, help="port of the running system")
    token.set_defaults(run=print_token)

    trigger = subparsers.add_parser("trigger", help="call a scheduled function, as Scheduler would")
    trigger.add_argument("function", choices=sorted(set(SCHEDULE) & set(function_names())))
    trigger.add_argument("--now", metavar="ISO", help="the time it shall take it to be")
    trigger.add_argument("--port", type=port_number, default=DEFAULT_PORT, help="port of the running system")
    trigger.set_defaults(run=trigger_function)

    migrate = subparsers.add_parser("migrate", help="bring the database to the newest schema")
    migrate.set_defaults(run=migrate_database)

    url = subparsers.add_parser("database-url", help="the address of the database, for psql")
    url.set_defaults(run=print_database_url)


def port_number(text: str) -> int:
    """The port that `text` names."""
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is no port from 1 to 65535")
    return int(text)


def run_system(arguments: argparse.Namespace) -> int:
    """Start everything and serve until interrupted."""
    folder: Path = arguments.data
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.quiet_minutes is not None:
        os.environ["MEMBERINTEL_QUIET_MINUTES"] = str(arguments.quiet_minutes)
    with (folder / "run.lock").open("w") as lock:
        if not _locked(lock):
            raise AppError(f"The system runs already on the data in {folder}.")
        _check_port(arguments.port)
        if arguments.fresh:
            _delete_data(folder)
        with opened(folder) as stack:
            _serve(stack, arguments.port)
    return 0


def _locked(lock: IO[str], tries: int = 20) -> bool:
    """Whether this process is the one that runs the system. The worker of one that was just killed may hold on for a moment."""
    for left in reversed(range(tries)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.1 if left else 0)
    return False


def _serve(stack: Stack, port: int) -> None:
    base_url = f"http://127.0.0.1:{port}"
    os.environ |= stack.issuer.settings(base_url + JWKS_PATH)
    os.environ["MEMBERINTEL_OIDC_AUTHORIZATION_URL"] = AUTHORIZE_PATH
    os.environ["MEMBERINTEL_OIDC_TOKEN_URL"] = TOKEN_PATH
    os.environ["MEMBERINTEL_LOCAL_DISPATCHER_URL"] = f"{base_url}/local"
    settings.cache_clear()
    config = settings()
    llm.check(config)
    _load_demo(config)
    db.engine("owner").dispose()
    db.engine("app").dispose()
    dispatcher = Dispatcher(base_url, stack.issuer.internal_token, function_names())

    def started() -> None:
        dispatcher.start()
        warm_up.begin(settings, auth.preload, llm.preload)
        print(f"MemberIntel is running. Open {console_address(base_url, stack.issuer)}", flush=True)
        print("Ctrl-C stops it; the data stays.", flush=True)

    LocalServer(lambda: LocalApp(dispatcher, stack.issuer, port), port, started).run()


def _load_demo(config: Settings) -> None:
    """The demo accounts with data that ends today, and the knowledge base where there is none."""
    owner = db.engine("owner")
    with db.transaction("owner") as connection:
        latest = connection.scalar(sa.text("select max(data_as_of) from sites"))
        articles = connection.scalar(
            sa.text("select 1 from brain_entries where tenant_id = 'global' limit 1")
        )
    if latest is None or latest.date() < now().date():
        print("Loading the demo data …", flush=True)
        demo.load(owner, db.engine("app"), now(), issuer=ISSUER)
    if articles is None:
        print("Reading the knowledge base …", flush=True)
        ingest.ingest(owner, demo.KNOWLEDGE, embedder(config), now=now())


def console_address(base_url: str, issuer: Issuer, email: str = demo.OWNER) -> str:
    """Where the console is, signed in. What stands behind # never leaves the browser."""
    return f"{base_url}/#token={issuer.customer_token(email, hours=24 * 7)}"


def admin_address(base_url: str, issuer: Issuer) -> str:
    """Where the admin's page is, signed in."""
    return f"{base_url}{ACCESS_PATH}?assertion={issuer.admin_assertion()}"


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise AppError(f"Port {port} is taken. Choose another with --port.") from None


def _delete_data(folder: Path) -> None:
    """Delete what the system made in `folder`, and nothing else: it may be one that holds the user's own files."""
    postgres.remove(folder)
    for name in ("postgres.log", ERASURE_LEDGER, *ISSUER_FILES):
        (folder / name).unlink(missing_ok=True)


def print_token(arguments: argparse.Namespace) -> int:
    """Print a customer's token, or the address behind which the admin's report is."""
    arguments.data.mkdir(parents=True, exist_ok=True)
    issuer = Issuer(arguments.data)
    base_url = f"http://127.0.0.1:{arguments.port}"
    print(admin_address(base_url, issuer) if arguments.admin else issuer.customer_token(arguments.user))
    return 0


def trigger_function(arguments: argparse.Namespace) -> int:
    """Call a function of the running system and print its answer."""
    issuer = Issuer(arguments.data)
    dispatcher = Dispatcher(f"http://127.0.0.1:{arguments.port}", issuer.internal_token, ())
    body = {"now": arguments.now} if arguments.now else {}
    try:
        print(to_json(dispatcher.call(arguments.function, body)))
    except urllib.error.HTTPError as exc:
        detail = json.loads(exc.read() or b"{}")
        print(to_json(detail))
        raise AppError(f"{arguments.function} answered {exc.code}: {detail.get('detail', '')}") from None
    except urllib.error.URLError:
        raise AppError(
            f"Nothing answers on port {arguments.port}: start it with `memberintel run`."
        ) from None
    return 0


def migrate_database(arguments: argparse.Namespace) -> int:
    """Apply missing migrations; on Cloud SQL make the group roles first, of which the functions' accounts are members."""
    with opened(arguments.data):
        if settings().cloud_sql_instance:
            make_roles(db.engine("owner"))
        bring_up_to_date()
    print("The schema is up to date.")
    return 0


def print_database_url(arguments: argparse.Namespace) -> int:
    """Print the libpq address of the local database. The server must run for it to answer."""
    with opened(arguments.data) as stack:
        print(stack.server.libpq_url() if stack.server else settings().database_url)
    if stack.server:
        print(f"with {stack.server.psql()} while the system runs", file=sys.stderr)
    return 0

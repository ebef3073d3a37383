"""The database: one engine a process and role, transactions scoped to a user, and the guard against pg8000's loss of step.

The only module that knows the driver or the Cloud SQL connector.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import pg8000
import sqlalchemy as sa
from sqlalchemy import Connection, Engine
from sqlalchemy.engine.interfaces import ExceptionContext

from common import driver
from common.config import Settings, settings, variable
from common.errors import ConfigError, NotFound, Unavailable
from common.once import once

Role = Literal["app", "jobs", "sweep", "admin_read", "owner"]
ROLE_NAMES: dict[Role, str] = {
    "app": "memberintel_app",
    "jobs": "memberintel_jobs",
    "sweep": "memberintel_sweep",
    "admin_read": "memberintel_admin_read",
    "owner": "memberintel_owner",
}


@once
def engine(role: Role) -> Engine:
    """This process's engine for `role`, made on first use."""
    return make_engine(settings(), role)


def make_engine(config: Settings, role: Role, *, pool_size: int | None = None) -> Engine:
    """An engine that connects as `role`: by URL locally, by the Cloud SQL connector with IAM login in the cloud.

    `max_overflow` is 0, so that instances times pool size is the number of connections the database must bear.
    """
    options: dict[str, Any] = {
        "pool_size": pool_size or config.pool_size,
        "max_overflow": 0,
        "pool_timeout": 5,
        "pool_recycle": 1800,
        "pool_pre_ping": False,  # a round trip a checkout; `retried` tries again on a dead connection instead
        "query_cache_size": 500,
        "hide_parameters": True,  # what a customer wrote would stand in the text of an error
    }
    # Of a connection that died it prints the whole error, and a server's error may quote a value; `common.log` says what is needed.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    startup = {
        "statement_timeout": str(config.statement_timeout_ms),
        "idle_in_transaction_session_timeout": "60000",
    }
    name = f"memberintel-{role}"
    if config.cloud_sql_instance:
        made = sa.create_engine("postgresql+pg8000://", creator=_cloud_sql(config, name, startup), **options)
    else:
        try:
            url = sa.make_url(config.database_url).set(username=ROLE_NAMES[role])
        except sa.exc.ArgumentError:
            raise ConfigError(f"{variable('database_url')} is no SQLAlchemy URL.") from None
        made = sa.create_engine(
            url, creator=connecting(url, startup_params=startup, application_name=name), **options
        )
    guard(made)
    return made


_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


def connecting(url: sa.URL, **more: Any) -> Callable[[], driver.Connection]:
    """What makes a connection of ours to `url`."""
    where = {**url.translate_connect_args(username="user"), **url.query, **more}
    if url.host in _THIS_MACHINE or "unix_sock" in url.query:
        # Asked for TLS, which pg8000 does unless told, it would read all authorities anew for each connection, to check none: 20 ms.
        where.setdefault("ssl_context", False)
    return lambda: driver.connect(**where)


def guard(target: Engine) -> None:
    """Discard a connection after any error that pg8000 did not get from the server.

    An exception while parameters are encoded leaves the connection one reply out of step: the next statements would get earlier
    replies, even another user's rows.
    """

    @sa.event.listens_for(target, "handle_error")
    def _discard(context: ExceptionContext) -> None:
        error = context.original_exception
        if isinstance(error, OSError | pg8000.InterfaceError) or _sqlstate(error)[:3] in _GONE:
            context.is_disconnect = True  # the server is gone, and with it every connection of the pool
        elif _sqlstate(error) in _OUTDATED:
            context.is_disconnect = True  # and so are the plans of every other connection
        elif not isinstance(error, pg8000.Error):
            context.is_disconnect = True
            context.invalidate_pool_on_disconnect = False


# Connection exceptions, and the server's own going: shut down, crashed, starting up.
_GONE = ("080", "57P")
# A table has changed so that a prepared statement would give other columns than it did, or the server has forgotten it.
_OUTDATED = ("0A000", "26000")
DUPLICATE, FOREIGN_KEY = "23505", "23503"
NOT_AS_EXPECTED = "MI002"  # by `not_as_expected`, a function of ours on the server
# A deadlock or a serialization failure: this transaction was rolled back for another's sake, and may simply be tried again.
IN_EACH_OTHERS_WAY = ("40P01", "40001")


def _sqlstate(error: BaseException | None) -> str:
    """The five-character code of an error that the server sent; empty for others."""
    return _field(error, "C")


def _field(error: BaseException | None, name: str) -> str:
    details = error.args[0] if error is not None and error.args else None
    return str(details.get(name, "")) if isinstance(details, dict) else ""


@once
def _connector() -> Any:
    from google.cloud.sql.connector import Connector

    # Background refresh dies when the CPU is throttled between requests.
    return Connector(refresh_strategy="lazy")


def preload(config: Settings) -> None:
    """Import the Cloud SQL connector, where the settings name an instance, ahead of the first connection."""
    if config.cloud_sql_instance:
        _connector()


def _cloud_sql(config: Settings, name: str, startup: dict[str, str]) -> Any:
    def connect() -> Any:
        made = _connector().connect(
            config.cloud_sql_instance,
            "pg8000",
            user=config.cloud_sql_user,
            db=config.cloud_sql_database,
            enable_iam_auth=True,
            ip_type="private",
            application_name=name,
            startup_params=startup,
            ssl_context=False,  # the connector's socket speaks TLS; pg8000 would ask for another inside
        )
        return driver.adopt(made)

    return connect


@contextlib.contextmanager
def transaction(role: Role, *, source: Engine | None = None) -> Iterator[Connection]:
    """A transaction as `role` that commits at the end and rolls back on an exception. No user is set: a policy that asks for one
    shows nothing. Raises Unavailable where the database cannot be reached, or goes away before the commit is known."""
    chosen = source or engine(role)
    try:
        connection = chosen.connect()
    except (sa.exc.TimeoutError, sa.exc.DBAPIError, OSError) as exc:
        raise Unavailable() from exc
    with connection, unavailable_when_gone(connection), connection.begin():
        yield connection


@contextlib.contextmanager
def unavailable_when_gone(connection: Connection) -> Iterator[None]:
    """Raises Unavailable where the database goes away under `connection`, or had gone while it waited in its pool."""
    try:
        yield
    except (sa.exc.DBAPIError, pg8000.InterfaceError, OSError) as exc:
        if connection.invalidated:  # else the error is the statement's, or of another making
            raise Unavailable() from exc
        raise


def statement(columns: str, sql: str) -> sa.TextualSelect:
    """`sql`, for `ask`. `columns` are the names of what its rows hold, in that order."""
    return sa.text(sql).columns(*map(sa.column, columns.split()))


def ask(connection: Connection, asked: sa.TextualSelect, values: Mapping[str, Any]) -> list[Any]:
    """The rows of `asked`, a `statement` that is asked at each turn, as named tuples; `values` may hold more than it needs. It is what
    `connection.execute` does, and raises what that raises, without the context, the cursor and the result that SQLAlchemy makes for each
    execution, and with each value sent once, however many places its name stands in."""
    operation, names, row = _compiled(asked, connection.dialect)
    opened = _opened(connection)
    try:
        rows = opened.ask(operation, [values[name] for name in names])
    except BaseException as exc:
        # Raised where SQLAlchemy meets any other error, it does all that follows from one: a name, listeners, the connection discarded.
        opened.failed = exc
        try:
            connection.exec_driver_sql(operation)
        finally:
            opened.failed = None
        raise
    return [row(*one) for one in rows]


def array(values: Iterable[Any]) -> str:
    """`values`, none of which needs quotes, as PostgreSQL writes an array of them. The driver asks each value of a list for its type."""
    return f"{{{','.join(map(str, values))}}}"


def binary(value: bytes) -> bytes:
    """`value`, which is as the server's binary input reads the parameter's type, as a parameter: quicker than text for many numbers."""
    return driver.Binary(value)


def error_name(error: BaseException) -> str:
    """What to call an error where its message, which may quote a customer, must not go: the server's code, else the type's name."""
    return _sqlstate(getattr(error, "orig", None) or error) or type(error).__name__


def error_detail(error: BaseException) -> str:
    """The detail of an error that a function of our own raised on the server; empty for others."""
    return _field(getattr(error, "orig", None) or error, "D")


def is_duplicate(error: BaseException) -> bool:
    """Whether a unique constraint refused a row: another transaction was faster."""
    return error_name(error) == DUPLICATE


def went_away(error: BaseException) -> bool:
    """Whether an error says that the database cannot be reached, rather than that it refused."""
    return isinstance(error, Unavailable | OSError) or bool(getattr(error, "connection_invalidated", False))


T = TypeVar("T")


def retried(work: Callable[[], T], *, attempts: int = 4, sleep: Callable[[float], None] = time.sleep) -> T:
    """What `work` returns; tried again, up to `attempts` times over a few seconds, when the database went away under it
    or two transactions stood in each other's way.

    `work` is one whole transaction that may be repeated: its writes carry their own guard against taking effect twice. Raises what `work`
    raised last, and Unavailable for a transaction that stood in another's way to the end.
    """
    attempt = 1
    while True:
        try:
            return work()
        except (Unavailable, OSError, sa.exc.DBAPIError) as exc:
            in_the_way = error_name(exc) in IN_EACH_OTHERS_WAY
            if not (went_away(exc) or in_the_way):
                raise
            if attempt == attempts:
                if in_the_way:
                    raise Unavailable() from exc
                raise
            sleep(0.2 * 4 ** (attempt - 1))
            attempt += 1


ONE_PLAN = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}
"""For the statements of each turn: a plan for any values is made once a connection, and finds its rows by indexes. Where the server may
choose, it comes to think, as tables grow, that a plan for the values at hand is cheaper, and spends more on planning than on the statement;
and a plan made while a table was small would go on reading all of it."""


@contextlib.contextmanager
def user_transaction(
    user_id: uuid.UUID,
    *,
    role: Role = "app",
    source: Engine | None = None,
    local: Mapping[str, str] | None = None,
) -> Iterator[Connection]:
    """A transaction as `role` that sees the rows of `user_id` only, with `local`, settings of the server's, while it lasts."""
    with transaction(role, source=source) as connection:
        set_local(connection, {**_of_user(user_id), **(local or {})})
        yield connection


def in_user_transaction(
    user_id: uuid.UUID,
    work: Callable[[Connection], T],
    *,
    role: Role = "app",
    source: Engine | None = None,
    local: Mapping[str, str] | None = None,
) -> T:
    """What `work` returns in a `user_transaction`, committed; `retried` where the database went away."""

    def attempt() -> T:
        with user_transaction(user_id, role=role, source=source, local=local) as connection:
            return work(connection)

    return retried(attempt)


def set_user(connection: Connection, user_id: uuid.UUID) -> None:
    """Scope the rest of this transaction to `user_id`. It ends with the transaction (`true`), so that it cannot reach the next one."""
    set_local(connection, _of_user(user_id))


def _of_user(user_id: uuid.UUID) -> dict[str, str]:
    return {"app.user_id": str(user_id)}


def commit_with_next(connection: Connection) -> None:
    """Commit this transaction in the round trip of its next statement, which is then its last: a further one would be of a new transaction
    without user and settings. Where that statement fails, nothing is committed, as ever; what is found out by reading its rows comes too
    late to roll it back. A COPY, and a statement without parameters or for many rows, goes without the commit, which then comes as ever.
    """
    _opened(connection).commit_with_next()


def set_local(connection: Connection, values: Mapping[str, str]) -> None:
    """Set what is named for the rest of this transaction. It goes with the transaction's next statement: no round trip of its own."""
    _opened(connection).later(_setting(len(values)), [part for pair in values.items() for part in pair])


@functools.cache
def _setting(count: int) -> str:
    return "select " + ", ".join(f"set_config(${n}, ${n + 1}, true)" for n in range(1, 2 * count, 2))


def ask_with_next(
    connection: Connection, asked: sa.TextualSelect, values: Mapping[str, Any]
) -> Callable[[], Any]:
    """Send `asked`, whose rows must be few and small, in the round trip of the transaction's next statement. The function tells its first
    row, a named tuple, or None; it may be called once that next one is answered. That one raises also what `asked` is refused for."""
    operation, names, row = _compiled(asked, connection.dialect)
    answer = _opened(connection).later(operation, [values[name] for name in names])
    return lambda: row(*answer.rows[0]) if answer.rows else None


@functools.lru_cache(100)
def _compiled(asked: sa.TextualSelect, dialect: sa.Dialect) -> tuple[str, Sequence[str], Callable[..., Any]]:
    """The statement with numbered parameters, one for each name, the names in their order, and the type of its rows."""
    numbering: Any = type(dialect)
    compiled = asked.compile(dialect=numbering(paramstyle="numeric_dollar"))
    columns = [column.name for column in asked.column_args]
    return str(compiled), compiled.positiontup or (), collections.namedtuple("Row", columns)


def _opened(connection: Connection) -> driver.Connection:
    opened = connection.connection.driver_connection
    assert isinstance(opened, driver.Connection), "an engine by make_engine"
    return opened


@contextlib.contextmanager
def heard(note: Callable[[str, str], None]) -> Iterator[None]:
    """Tell `note` of each statement that this process sends until the block ends, and of the role that sends it: for tests and evals, which
    ask what was asked."""
    roles: dict[str, str] = {name: role for role, name in ROLE_NAMES.items()}

    def tell(connection: driver.Connection, sql: str) -> None:
        user = connection.user.decode()
        note(roles.get(user, user), sql)

    driver.Connection.heard = tell
    try:
        yield
    finally:
        driver.Connection.heard = None


class Writer(Protocol):
    """Takes bytes."""

    def write(self, data: bytes, /) -> object: ...


def copy_out(connection: Connection, sql: str, out: Writer) -> int:
    """Run `sql`, a `copy (…) to stdout`, and write what it gives to `out`; returns the number of rows. Discards the connection on any
    error, for a copy that breaks off leaves it out of step."""
    try:
        cursor = connection.connection.cursor()
        cursor.execute(sql, stream=out)  # type: ignore[call-arg]
        return int(cursor.rowcount)
    except BaseException:
        connection.invalidate()
        raise


def as_uuid(text: str) -> uuid.UUID:
    """The id that `text` writes; NotFound for what is no id, since nothing has it."""
    try:
        return uuid.UUID(text)
    except ValueError:
        raise NotFound() from None

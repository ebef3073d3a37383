"""The driver: pg8000, with a statement in one round trip where it takes three, and each statement prepared once a connection.

pg8000 sends Parse, waits, sends Describe, waits, sends Bind. Here they go together, and only Bind the next time. What nobody waits for
the answer of (a transaction's begin, a savepoint, a setting) goes with the statement after it, under one Sync: where the server refuses
one of them it skips the rest. Everything is encoded before any of it is sent, so that a value which cannot be encoded leaves nothing half
said. Only `db` uses this module.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from pg8000 import converters, core, dbapi

PREPARED = 100
"""How many prepared statements a connection keeps on the server."""

WAITING = 100
"""A savepoint waits only while fewer requests than these do. We read no answer before all is sent: where the server could not get rid of
the first ones, each would wait for the other."""

_UNANSWERED = ("SAVEPOINT ", "RELEASE SAVEPOINT ")
_READY = core.READY_FOR_QUERY[0]
_ENDS = (core.COMMAND_COMPLETE[0], core.EMPTY_QUERY_RESPONSE[0])  # of the answer to a statement
_UNREAD = (core.PARSE_COMPLETE[0], core.BIND_COMPLETE[0])  # they only say that all is well
# Where pg8000 has a word of its own: the server does not refuse the commit of a transaction that has failed, it rolls back.
_ROLLED_BACK = {"C": "25P02", "M": "the transaction had failed and was rolled back"}
_NONE = b"\0\0"  # of the types, formats and result formats that may be listed: where none is, all is text
_NULL = b"\xff\xff\xff\xff"


class Binary(bytes):
    """A parameter as the server's binary input reads its type."""


def adopt(made: Any) -> Connection:
    """`made`, a connection of pg8000's, as one of ours: the Cloud SQL connector makes no others."""
    made.__class__ = Connection
    made.message_types[core.COPY_DATA] = made.handle_COPY_DATA
    made.register_in_adapter(converters.TIMESTAMPTZ, _moment)
    made.prepared, made.waiting, made.stale, made.names = OrderedDict(), [], [], itertools.count()
    made.received, made.at, made.last, made.failed = bytearray(), 0, False, None
    made.handlers = {code[0]: handler for code, handler in made.message_types.items()}
    return made  # type: ignore[no-any-return]


def _moment(text: str) -> datetime | str:
    """A timestamptz; text where Python has no such moment. pg8000 reads it by `strptime`, ten times slower."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return converters.timestamptz_in(text)  # type: ignore[no-any-return]


def connect(**options: Any) -> Connection:
    """A connection by `options` of pg8000's own `connect`."""
    return adopt(dbapi.connect(**options))


class Cursor(dbapi.Cursor):  # type: ignore[misc]
    """A cursor that reads a statement's placeholders once, not at each execution."""

    def execute(self, operation: str, args: Sequence[Any] = (), stream: Any = None) -> None:
        """As in DB-API."""
        if self._c is None:
            raise dbapi.InterfaceError("Cursor closed")
        if self._c.failed is not None:
            raise self._c.failed
        self._c.begin()
        if args or stream is not None:
            self._context = self._c.execute_unnamed(_numbered(operation), args, stream=stream)
        else:
            self._context = self._c.execute_simple(operation)
        rows = self._context.rows
        self._row_iter = None if rows is None else iter(rows)

    def executemany(self, operation: str, param_sets: Iterable[Sequence[Any]]) -> None:
        """As in DB-API. No commit goes with it, for it is several statements."""
        if self._c is not None:
            self._c.last = False
        super().executemany(operation, param_sets)


@functools.lru_cache(maxsize=500)
def _numbered(operation: str) -> str:
    return str(dbapi.convert_paramstyle("format", operation, ())[0])


class Connection(dbapi.Connection):  # type: ignore[misc]
    """A connection of pg8000's that waits less."""

    prepared: OrderedDict[str, _Prepared]
    waiting: list[_Request]
    stale: list[bytes]
    names: Iterator[int]
    received: bytearray
    at: int
    handlers: dict[int, Callable[[bytes, Any], None]]
    last: bool
    failed: BaseException | None
    """What a cursor's statement raises instead of being sent."""
    heard: ClassVar[Callable[[Connection, str], None] | None] = None
    """Told of each statement that any connection sends."""
    _usock: socket.socket | None

    def cursor(self) -> Cursor:
        """A cursor of ours."""
        return Cursor(self)

    def begin(self) -> None:
        """Begin a transaction, unless one is open or the connection commits by itself."""
        if not self.autocommit and not self._in_transaction:
            self.waiting.append(_control("begin transaction", begins=True))
            self._transaction_status, self.last = core.IN_TRANSACTION, False

    def ask(self, operation: str, values: Sequence[Any]) -> Sequence[Any]:
        """The rows of `operation`, whose parameters are numbered."""
        self.begin()
        return self._exchange(self._extended(operation, values)).rows or ()

    def later(self, operation: str, values: Sequence[Any]) -> Any:
        """Send `operation`, whose parameters are numbered, with the next statement. Its rows, which must be few and small, are in what is
        returned, once that next one is answered. That one raises its error, and has then had no effect itself, for the transaction has
        failed. Raises ProgrammingError outside a transaction: it would meet the next user."""
        self.begin()
        if not self._in_transaction:
            raise dbapi.ProgrammingError("nothing waits outside a transaction")
        self.waiting.append(self._extended(operation, values))
        return self.waiting[-1].context

    def commit_with_next(self) -> None:
        """Commit the open transaction with its next statement, which is its last: where that fails, nothing is committed. A
        COPY, and a statement without parameters (a rollback to a savepoint is one) or for many rows, goes without it."""
        self.last = self._in_transaction

    def execute_simple(self, statement: str) -> Any:
        """A statement without parameters, or several with semicolons between them."""
        # Once the transaction has failed, the server refuses any.
        accepted = self._transaction_status == core.IN_TRANSACTION
        if accepted and len(self.waiting) < WAITING and statement.startswith(_UNANSWERED):
            self.waiting.append(_control(statement, marks=True))
            return self.waiting[-1].context
        self.last = False
        return self._exchange(_simple(statement))

    def execute_unnamed(
        self, statement: str, vals: Sequence[Any] = (), oids: Sequence[int] = (), stream: Any = None
    ) -> Any:
        """A statement with parameters, or a COPY."""
        if stream is not None:
            self.last = False
            if self.waiting:
                self._exchange(self.waiting.pop())
            return super().execute_unnamed(statement, vals, oids, stream)
        if statement in ("commit", "rollback"):
            return self._finish(statement)
        return self._exchange(self._extended(statement, vals)) if vals else self.execute_simple(statement)

    def _finish(self, statement: str) -> Any:
        """Commit or roll back. The transaction is over then, whatever is raised, but for a lost connection."""
        self.last = False
        if self.waiting and self.waiting[0].begins:
            self.waiting.clear()  # nothing was asked in it
            self._transaction_status = core.IDLE
            return core.Context(statement)
        if statement == "commit" and not (self._in_transaction or self.autocommit):
            return core.Context(statement)  # it went with the last statement
        if statement == "rollback":
            self.waiting.clear()  # the server would skip the rollback, where it refused one of them
        try:
            return self._exchange(_control(statement))
        except dbapi.DatabaseError:
            if self._in_transaction:  # what waited was refused, and the commit skipped
                self._exchange(_control("rollback"))
            raise

    def close(self) -> None:
        """Close, also under a thread that still reads. It is woken first: a read that goes on where the descriptor has been given to
        the next connection takes that one's bytes (TLS reads a record in two)."""
        opened: socket.socket | None = self._usock
        if opened is None:
            raise dbapi.InterfaceError("connection is closed")
        self._usock = self._sock = None
        with contextlib.closing(opened), contextlib.suppress(OSError):
            opened.sendall(core.TERMINATE_MSG)
            socket.socket.shutdown(opened, socket.SHUT_RDWR)  # TLS's own would drop what the reader stands in

    def handle_messages(self, context: Any) -> None:
        """Read up to the next ReadyForQuery. Raises the server's error then."""
        self._read((context,))
        if context.error is not None:
            raise context.error

    def handle_COPY_DATA(self, data: bytes, context: Any) -> None:
        """Write a row of a COPY, and with it those that have come already."""
        rows = [data]
        while (end := self._end()) and self.received[self.at] == core.COPY_DATA[0]:
            rows.append(bytes(self.received[self.at + 5 : end]))
            self.at = end
        context.stream_write(b"".join(rows))

    def _end(self) -> int:
        """Where the next message ends in what was received; 0 while it has not come whole."""
        if len(self.received) - self.at < 5:
            return 0
        end: int = self.at + 1 + core.i_unpack(self.received, self.at + 1)[0]
        return end if end <= len(self.received) else 0

    def _receive(self) -> None:
        """More of the answer, in as large pieces as it comes: pg8000 reads each message in two."""
        opened = self._usock
        try:
            more = opened.recv(65536) if opened is not None else b""
        except OSError as exc:
            raise dbapi.InterfaceError("network error") from exc
        if not more:
            raise dbapi.InterfaceError("network error")
        del self.received[: self.at]
        self.received += more
        self.at = 0

    def _extended(self, statement: str, values: Sequence[Any]) -> _Request:
        bound = self._bound(values)
        known = self.prepared.get(statement)
        if known is not None:
            self.prepared.move_to_end(statement)
            context = core.Context(statement, columns=known.columns, input_funcs=known.readers)
            return _Request(_run(known.name, bound), context)
        name = f"statement_{next(self.names)}\0".encode()
        text = statement.encode() + b"\0"
        parse = _message(core.PARSE, name + text + _NONE) + _message(core.DESCRIBE, core.STATEMENT + name)
        return _Request(parse + _run(name, bound), core.Context(statement), name)

    def _bound(self, values: Sequence[Any]) -> bytes:
        """The formats and the values as Bind has them, each value after its length. All are text but what is `Binary`."""
        count = len(values).to_bytes(2)
        parts, formats = [count], _NONE
        if Binary in map(type, values):
            formats = count + b"".join((type(one) is Binary).to_bytes(2) for one in values)
        for value in values:
            if value is None:
                parts.append(_NULL)
                continue
            kind = type(value)
            if kind is str:
                coded = value.encode()
            elif kind is Binary:
                coded = value
            else:
                known = self.py_types.get(kind)
                text = known(value) if known else core.make_params(self.py_types, (value,))[0]
                coded = text.encode()
            parts.append(len(coded).to_bytes(4))
            parts.append(coded)
        return formats + b"".join(parts)

    def _exchange(self, request: _Request) -> Any:
        """The answer to `request`, after what waited for it. Raises the first error of any of them, when all answers are read."""
        requests = [*self.waiting, request]
        # What goes in one flight is to the server one transaction, begun and committed without being told. A savepoint needs to be in one
        # that it was told of.
        if self.last and requests[0].begins and not any(one.marks for one in requests):
            del requests[0]
        elif self.last:
            requests.append(_control("commit"))
        self.waiting, self.last = [], False
        opened = self._usock
        if opened is None:
            raise dbapi.InterfaceError("connection is closed")
        if self.heard is not None:
            for one in requests:
                self.heard(one.context.statement)
        flights = [list(together) for _, together in itertools.groupby(requests, lambda one: one.simple)]
        closing = [_message(core.CLOSE, core.STATEMENT + old) for old in self.stale]
        self.stale.clear()
        try:
            opened.sendall(b"".join([*closing, *(part for flight in flights for part in _sent(flight))]))
        except OSError as exc:
            raise dbapi.InterfaceError("network error") from exc
        errors = [error for flight in flights if (error := self._answer(flight))]
        if errors:
            raise errors[0]
        return request.context

    def _answer(self, flight: Sequence[_Request]) -> BaseException | None:
        """Read the answer to `flight`. Returns the error by which the server refused one of it, and skipped the rest."""
        answered = self._read([one.context for one in flight])
        for number, one in enumerate(flight):
            if not one.prepares:
                continue
            if number >= answered:
                self.stale.append(one.prepares)
            else:
                self._keep(one)
        error = next((one.context.error for one in flight if one.context.error is not None), None)
        return dbapi.DatabaseError(_ROLLED_BACK) if isinstance(error, dbapi.InterfaceError) else error

    def _read(self, contexts: Sequence[Any]) -> int:
        """Read up to the next ReadyForQuery, the answer to each statement into its context; returns how many were answered."""
        answered, kind, last = 0, 0, len(contexts) - 1
        while kind != _READY:
            start, end = self.at, self._end()
            if not end:
                self._receive()
                continue
            self.at = end
            kind = self.received[start]
            if kind not in _UNREAD:
                self.handlers[kind](bytes(self.received[start + 5 : end]), contexts[min(answered, last)])
                answered += kind in _ENDS
        return answered

    def _keep(self, request: _Request) -> None:
        """Remember a statement that the server has prepared."""
        context = request.context
        if twin := self.prepared.get(context.statement):  # both were on their way before either was known
            self.stale.append(twin.name)
        self.prepared[context.statement] = _Prepared(request.prepares, context.columns, context.input_funcs)
        if len(self.prepared) > PREPARED:
            self.stale.append(self.prepared.popitem(last=False)[1].name)


class _Prepared(NamedTuple):
    """A statement that the server keeps: what its rows are made of is known."""

    name: bytes
    columns: Any
    readers: Any


class _Request(NamedTuple):
    """The messages of a statement, and what its answer is read into. `prepares` is the name of the statement that they prepare. It `begins`
    a transaction, or `marks` a savepoint in one. A `simple` one has its own Sync."""

    messages: bytes
    context: Any
    prepares: bytes = b""
    begins: bool = False
    marks: bool = False
    simple: bool = False


def _simple(statement: str) -> _Request:
    message = _message(core.QUERY, statement.encode() + b"\0")
    return _Request(message, core.Context(statement), simple=True)


def _control(statement: str, *, begins: bool = False, marks: bool = False) -> _Request:
    """A statement that begins, ends or marks a transaction: not worth keeping on the server, which parses it in no time."""
    return _Request(_parsed_and_run(statement), core.Context(statement), begins=begins, marks=marks)


@functools.lru_cache(100)
def _parsed_and_run(statement: str) -> bytes:
    return _message(core.PARSE, b"\0" + statement.encode() + b"\0" + _NONE) + _run(b"\0", _NONE + _NONE)


def _run(name: bytes, bound: bytes) -> bytes:
    execute: bytes = core.EXECUTE_MSG
    return _message(core.BIND, b"\0" + name + bound + _NONE) + execute


def _sent(flight: Sequence[_Request]) -> list[bytes]:
    """The messages of `flight` up to its Sync."""
    messages = [one.messages for one in flight]
    return messages if flight[0].simple else [*messages, core.SYNC_MSG]


def _message(code: bytes, body: bytes) -> bytes:
    return code + (len(body) + 4).to_bytes(4) + body

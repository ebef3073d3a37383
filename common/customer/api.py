"""The customer's operations as one table. Each entry says method, path, query, body and answer; what is served and what
`/openapi.json` documents are both made from it, so that they cannot drift apart.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from sqlalchemy import Connection

from common import accounts, db, events
from common.accounts import Account
from common.config import Settings
from common.errors import Forbidden, InvalidFields
from common.http import Call, Endpoints, json_response, json_stream, no_content
from common.shapes import Shape
from common.text import VISIBLE, clean_json, is_blank


class Nothing(Shape):
    """No query parameters."""


class Body(Shape):
    """A request body: a field that nobody knows is refused rather than ignored, and 1 is not true."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _seen(text: str) -> str:
    if is_blank(text):
        raise ValueError("there is nothing to see in this text")
    return text


# A text in which there is something to see.
Visible = Annotated[str, AfterValidator(_seen), Field(json_schema_extra={"pattern": VISIBLE})]
# JSON knows one kind of number: 3.0 is the integer 3.
Whole = Annotated[int, BeforeValidator(lambda v: int(v) if isinstance(v, float) and v.is_integer() else v)]


@dataclass(frozen=True)
class Asked:
    """A customer's request inside its transaction, which is scoped to `account.user_id`."""

    connection: Connection
    account: Account
    now: datetime
    config: Settings
    params: Mapping[str, str]
    query: Any
    body: Any
    prepared: Any
    if_match: int | None

    @property
    def user_id(self) -> uuid.UUID:
        return self.account.user_id

    @property
    def id(self) -> uuid.UUID:
        """The id in the path. Raises NotFound for what is no id."""
        return db.as_uuid(self.params["id"])


@dataclass(frozen=True)
class Answer:
    """What an operation answers: its document (None: 204) or the pieces of one, its version (the ETag), and the events to publish after
    the commit. Pieces are made after the transaction has ended."""

    value: BaseModel | None = None
    version: int | None = None
    events: tuple[events.Event, ...] = ()
    pieces: Iterator[str] | None = None
    file_name: str = ""


Handler = Callable[[Asked], Answer]
Prepare = Callable[[Any, Settings], Any]


@dataclass(frozen=True)
class Operation:
    """One entry of the table. `edits` honours If-Match; `versioned` answers with an ETag; `pro` refuses a Free tenant; `prepare` is
    called with the body before a connection is taken, for what must not wait while one is held; `links` names operations on what stands
    at a place of the answer, by the JSON pointer to its id."""

    method: str
    path: str
    handler: Handler
    answer: type[BaseModel] | None
    query: type[BaseModel] = Nothing
    body: type[BaseModel] | None = None
    status: int = 200
    edits: bool = False
    versioned: bool = False
    pro: bool = False
    prepare: Prepare | None = None
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def params(self) -> list[str]:
        """The names in the path."""
        return re.findall(r"<(\w+)>", self.path)

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def about(self) -> str:
        """The handler's docstring on one line: the operation's description."""
        return " ".join((self.handler.__doc__ or "").split())


@dataclass
class Operations:
    """A table of operations."""

    table: list[Operation] = field(default_factory=list)

    def add(
        self, method: str, path: str, *, answer: type[BaseModel] | None, **options: Any
    ) -> Callable[[Handler], Handler]:
        """Enter a handler into the table."""

        def enter(handler: Handler) -> Handler:
            status = 200 if answer else 204
            self.table.append(Operation(method, path, handler, answer, **{"status": status, **options}))
            return handler

        return enter

    def serve(self, endpoints: Endpoints) -> None:
        """Make an endpoint of each operation, behind the customer's gate."""
        for operation in self.table:
            route = endpoints.route(operation.method, operation.path, gate="customer")
            route(partial(carry_out, operation))


PRO_ONLY = "SOUL, BIBLE and HEARTBEAT, their revisions and restoring them are part of the Pro plan."


def carry_out(operation: Operation, call: Call) -> Any:
    """The response of `operation` to `call`: one transaction as the customer, then its events, after the commit."""
    query = read(operation.query, clean_json(call.request.args.to_dict()))
    body = read(operation.body, call.body) if operation.body else None
    prepared = operation.prepare(body, call.config) if operation.prepare else None
    if_match = expected_version(call.request.headers.get("If-Match")) if operation.edits else None

    def work() -> Answer:
        with db.transaction("app") as connection:
            account = accounts.enter(connection, call.customer, call.config, call.now)
            if operation.pro and account.tier != "pro":
                raise Forbidden(PRO_ONLY)
            return operation.handler(
                Asked(
                    connection, account, call.now, call.config, call.params, query, body, prepared, if_match
                )
            )

    answer = db.retried(work, attempts=3)
    if answer.events:
        events.publish_now(answer.events, events.publisher(call.config))
    if answer.pieces is not None:
        return json_stream(answer.pieces, file_name=answer.file_name)
    headers = {"ETag": f'"{answer.version}"'} if answer.version is not None else None
    if answer.value is None:
        return no_content()
    return json_response(answer.value.model_dump(mode="json"), operation.status, headers)


M = TypeVar("M", bound=BaseModel)


def read(model: type[M], given: Any) -> M:
    """`given` as a `model`. Raises InvalidFields that names each wrong field, and repeats nothing of what was sent."""
    try:
        return model.model_validate(given)
    except ValidationError as exc:
        wrong = [
            {"field": ".".join(map(str, e["loc"])), "problem": e["msg"]}
            for e in exc.errors(include_input=False)
        ]
        named = "; ".join(f"{w['field'] or 'body'}: {w['problem']}" for w in wrong[:5])
        raise InvalidFields(f"Some fields are missing or wrong. {named}", fields=wrong[:20]) from None


NO_VERSION = -1


def expected_version(if_match: str | None) -> int | None:
    """The version that an edit builds on; None without the header or with `*`: then the last write wins. What is no tag of ours is the
    version of nothing. Proxies that compress mark a tag as weak; the version in it is the same."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = re.fullmatch(r'\s*(?:W/)?"([0-9]{1,18})"\s*', if_match)
    return int(found[1]) if found else NO_VERSION

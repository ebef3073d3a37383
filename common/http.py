"""The edge: one endpoint decorator, problem documents, request limits and server-sent events.

With `common.auth` the only place that turns an HTTP request into a call of the domain and an error into a response.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from flask import Request, Response, current_app, has_app_context
from flask import request as flask_request
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge
from werkzeug.exceptions import MethodNotAllowed as WrongMethod
from werkzeug.exceptions import NotFound as NoRoute
from werkzeug.routing import Map, Rule

from common import accounts, auth, clock, log
from common.config import Settings, settings
from common.errors import (
    AppError,
    InvalidFields,
    InvalidRequest,
    LimitReached,
    MethodNotAllowed,
    NotFound,
    TooLarge,
    UnsupportedMediaType,
)
from common.once import once
from common.rate_limit import TooManyRequests
from common.text import MAX_JSON_DEPTH, clean_json, to_json

Gate = Literal["public", "customer", "admin", "internal"]
PROBLEM = "urn:memberintel:problem:"
MAX_BODY_BYTES = 64 * 1024
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Strict-Transport-Security": "max-age=31536000; includeSubDomains",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_TRACEPARENT = re.compile(r"^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$")


@dataclass(frozen=True)
class Call:
    """An authorised request. `body` is the JSON object that was sent, cleaned; empty where the method has none."""

    request: Request
    config: Settings
    now: datetime
    identity: auth.Identity | None = None
    caller: str = ""
    params: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)

    @property
    def customer(self) -> auth.Identity:
        """The customer; a route behind the customer's gate has one."""
        assert self.identity is not None, "route without the customer's gate"
        return self.identity

    def at(self) -> datetime:
        """The time an internal function works at: the body's `now` (ISO 8601 with its zone), else the present. Raises InvalidFields."""
        given = self.body.get("now")
        if given is None:
            return self.now
        try:
            moment = datetime.fromisoformat(given)
        except (TypeError, ValueError):
            raise InvalidFields("now: this is no ISO 8601 time.") from None
        if moment.tzinfo is None:
            raise InvalidFields("now: the time needs its zone.")
        return moment


Handler = Callable[[Call], "Response | dict[str, Any]"]


class Endpoint(NamedTuple):
    """A route and what it demands of its caller."""

    method: str
    path: str
    gate: Gate
    handler: Handler
    max_body: int = MAX_BODY_BYTES


class Endpoints:
    """The routes of one function. `answer` is its whole entry point."""

    def __init__(self) -> None:
        self.routes: list[Endpoint] = []
        self._map = once(self._make_map)
        if has_app_context():  # functions-framework loads a function within its application's context
            settings()  # what is wrong with them stops the start, not the first request
            current_app.register_error_handler(404, self._unrouted)

    def route(
        self, method: str, path: str, *, gate: Gate, max_body: int = MAX_BODY_BYTES
    ) -> Callable[[Handler], Handler]:
        """Declare a handler: its method, its path and who may call it."""

        def declare(handler: Handler) -> Handler:
            self.routes.append(Endpoint(method, path, gate, handler, max_body))
            self._map.cache_clear()
            return handler

        return declare

    def answer(self, request: Request) -> Response:
        """The response to `request`, whatever happens: errors become problem documents, and only unexpected ones are logged."""
        config = settings()
        log.set_trace(_trace_of(request, config))
        try:
            preflight = request.method == "OPTIONS"
            response = Response(status=204) if preflight else self._dispatch(request, config)
        except AppError as exc:
            if exc.status >= 500:
                log.write_exception("request failed", exc.__cause__ or exc, status=exc.status)
            response = problem(exc)
        except HTTPException as exc:
            response = problem(InvalidRequest() if (exc.code or 500) < 500 else AppError())
        except Exception as exc:
            log.write_exception("request failed", exc, status=500)
            response = problem(AppError())
        return _finish(response, request, config)

    def _unrouted(self, _exc: HTTPException) -> Response:
        """The problem document for a path that the framework's own routes do not take: one with a line break."""
        return _finish(problem(NotFound()), flask_request, settings())

    def _dispatch(self, request: Request, config: Settings) -> Response:
        endpoint, params = self._match(request)
        identity, caller = None, ""
        if endpoint.gate == "customer":
            identity = auth.customer(request.headers.get("Authorization"), config)
        elif endpoint.gate == "admin":
            assertion = request.headers.get("Cf-Access-Jwt-Assertion")
            caller = auth.admin(assertion, config, authorization=request.headers.get("Authorization"))
        elif endpoint.gate == "internal":
            caller = auth.internal(request.headers.get("Authorization"), config)
        body = json_body(request, endpoint.max_body) if request.method in ("POST", "PUT", "PATCH") else {}
        call = Call(request, config, clock.now(), identity, caller, params, body)
        try:
            result = endpoint.handler(call)
        except AppError as exc:
            if identity is not None and exc.status < 500 and not isinstance(exc, TooManyRequests):
                accounts.count_refused(identity, config, call.now)
            raise
        return result if isinstance(result, Response) else json_response(result)

    def _make_map(self) -> Map:
        """Made once: werkzeug compiles each rule by `ast.parse`, which fails now and then in several threads of Python 3.11 at a time."""
        rules = [Rule(e.path, methods=[e.method], endpoint=i) for i, e in enumerate(self.routes)]
        return Map(rules, strict_slashes=False)

    def _match(self, request: Request) -> tuple[Endpoint, dict[str, str]]:
        try:
            index, params = self._map().bind("").match(request.path, method=request.method)
        except WrongMethod as exc:
            raise MethodNotAllowed(allow=sorted(exc.valid_methods or [])) from None
        except (NoRoute, HTTPException):
            raise NotFound() from None
        return self.routes[int(index)], dict(params)


def json_body(request: Request, max_body: int) -> dict[str, Any]:
    """The JSON object in the body of `request`. Raises the 400, 413 or 415 that fits what else it is."""
    too_large = TooLarge(f"The body may hold {max_body} bytes.")
    if request.content_length is not None and request.content_length > max_body:
        raise too_large
    request.max_content_length = max_body + 1  # without a length, what comes is cut there, not always refused
    try:
        raw = request.get_data(cache=False)
    except RequestEntityTooLarge:
        raise too_large from None
    except Exception:  # the server's own parser: a chunk without its size, a client that left
        raise InvalidRequest("The body could not be read.") from None
    if len(raw) > max_body:
        raise too_large
    if not raw:
        return {}
    if request.mimetype != "application/json":
        raise UnsupportedMediaType()
    return parse_object(raw)


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object that `raw` holds, cleaned of what the database cannot store. Raises InvalidRequest."""
    try:
        value = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidRequest("The body is not valid JSON.") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be one JSON object.")
    if _depth(value) > MAX_JSON_DEPTH:
        raise InvalidRequest(f"The body may be nested {MAX_JSON_DEPTH} levels deep.")
    cleaned: dict[str, Any] = clean_json(value)
    return cleaned


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
    return depth


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """`value` as a JSON response."""
    return Response(to_json(value), status=status, headers=headers, mimetype="application/json")


def json_stream(pieces: Iterable[str], *, file_name: str) -> Response:
    """A JSON document sent as it is made, to be saved as a file. Nothing in `pieces` may touch the request: it is gone by then."""
    response = Response(_encoded(pieces), mimetype="application/json")
    response.headers["Content-Disposition"] = f'attachment; filename="{file_name}"'
    return response


def no_content() -> Response:
    """The answer to what is done and has nothing to show."""
    response = Response(status=204)
    del response.headers["Content-Type"]
    return response


def problem(error: AppError) -> Response:
    """`error` as an RFC 9457 problem document with a stable `type`."""
    document = {
        "type": PROBLEM + error.type,
        "title": (type(error).__doc__ or "").strip().split("\n")[0],
        "status": error.status,
        "detail": error.detail,
        **error.extra,
    }
    response = Response(to_json(document), status=error.status, mimetype="application/problem+json")
    if isinstance(error, LimitReached):
        response.headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, MethodNotAllowed) and error.extra.get("allow"):
        response.headers["Allow"] = ", ".join(error.extra["allow"])
    if error.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def event_stream(parts: Iterable[str], headers: dict[str, str] | None = None) -> Response:
    """Server-sent events from `parts`, each a finished event. Nothing in `parts` may touch the request: it is gone by then."""
    response = Response(_encoded(parts), mimetype="text/event-stream", headers=headers)
    response.headers["X-Accel-Buffering"] = "no"
    return response


def _encoded(parts: Iterable[str]) -> Iterator[bytes]:
    for part in parts:
        yield part.encode()


def _finish(response: Response, request: Request, config: Settings) -> Response:
    # functions-framework reads what is left of the body once there is an answer: all of it, into memory, also of a caller who was refused.
    request.stream = io.BytesIO()
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    origin = request.headers.get("Origin")
    response.headers.add("Vary", "Origin")
    if origin and origin in config.cors_origins:
        response.headers["Access-Control-Allow-Origin"] = origin
        if request.method == "OPTIONS":
            response.headers["Access-Control-Allow-Methods"] = "GET, POST, PUT, PATCH, DELETE"
            response.headers["Access-Control-Allow-Headers"] = "Authorization, Content-Type, If-Match"
            response.headers["Access-Control-Max-Age"] = "600"
    return response


def _trace_of(request: Request, config: Settings) -> dict[str, str]:
    """The request's trace as Cloud Logging links it: by its full name, which has the project in it."""
    if match := _TRACEPARENT.match(request.headers.get("traceparent", "")):
        trace, span = match.groups()
        if config.pubsub_project:
            trace = f"projects/{config.pubsub_project}/traces/{trace}"
        return {"logging.googleapis.com/trace": trace, "logging.googleapis.com/spanId": span}
    return {}

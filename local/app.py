"""All functions behind one address, each made by functions-framework from the folder that is deployed; beside them, under `/local`, what
stands for others: the topics, the issuer's public keys and its sign-in, and Access, which turns a browser's cookie into an assertion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import functions_framework
from gunicorn.app.base import BaseApplication
from werkzeug.http import dump_cookie, parse_cookie

from local.dispatcher import Dispatcher
from local.issuer import Issuer
from local.postgres import die_with_parent
from local.sign_in import AUTHORIZE_PATH, TOKEN_PATH, SignIn

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = ROOT / "functions"
# Paths of the services; everything else is the brain's, which serves the console.
_PREFIXES = {"/chat": "chat", "/admin": "admin"}

JWKS_PATH = "/local/jwks.json"
ACCESS_PATH = "/local/access"
_ACCESS_COOKIE = "CF_Authorization"

WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def function_names() -> list[str]:
    """The functions that there are."""
    return sorted(path.parent.name for path in FUNCTIONS.glob("*/main.py"))


class LocalApp:
    """A WSGI application that hands each request to the function that the load balancer would choose."""

    def __init__(self, dispatcher: Dispatcher, issuer: Issuer, port: int) -> None:
        self._dispatcher = dispatcher
        self._jwks = issuer.jwks.read_bytes()
        self._sign_in = SignIn(issuer, port)
        self._apps: dict[str, WSGI] = {
            name: functions_framework.create_app("main", str(FUNCTIONS / name / "main.py")).wsgi_app
            for name in function_names()
        }

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == JWKS_PATH:
            start_response("200 OK", [("Content-Type", "application/json")])
            return [self._jwks]
        if path == ACCESS_PATH:
            return _let_in(environ, start_response)
        if path == AUTHORIZE_PATH:
            return self._sign_in.authorize(environ, start_response)
        if path == TOKEN_PATH:
            return self._sign_in.token(environ, start_response)
        if path.startswith("/local/topics/") and environ["REQUEST_METHOD"] == "POST":
            return self._publish(path.removeprefix("/local/topics/"), environ, start_response)
        function = self._function(path)
        if function == "admin":
            _assert_admin(environ)
        return self._apps[function](environ, start_response)

    def _function(self, path: str) -> str:
        parts = path.split("/")
        if len(parts) > 2 and parts[1] == "internal" and parts[2] in self._apps:
            return parts[2]
        return next((f for p, f in _PREFIXES.items() if path == p or path.startswith(p + "/")), "brain")

    def _publish(
        self, topic: str, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        try:
            length = min(int(environ.get("CONTENT_LENGTH") or 0), 10_000)
            self._dispatcher.publish(topic, environ["wsgi.input"].read(length))
        except ValueError:
            start_response("400 Bad Request", [("Content-Type", "text/plain")])
            return [b"not an event of ours\n"]
        start_response("204 No Content", [])
        return []


def _let_in(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Keep the assertion of the address in a cookie that only `/admin` gets, and go there."""
    (assertion,) = parse_qs(environ.get("QUERY_STRING", "")).get("assertion", [""])[:1]
    cookie = dump_cookie(_ACCESS_COOKIE, assertion, path="/admin", httponly=True, samesite="Strict")
    start_response("303 See Other", [("Location", "/admin"), ("Set-Cookie", cookie)])
    return []


def _assert_admin(environ: dict[str, Any]) -> None:
    """Hand the cookie's assertion on, which is checked like any other."""
    if assertion := parse_cookie(environ).get(_ACCESS_COOKIE):
        environ.setdefault("HTTP_CF_ACCESS_JWT_ASSERTION", assertion)


class LocalServer(BaseApplication):  # type: ignore[misc]
    """gunicorn as functions-framework runs it: one worker, a thread for each request."""

    def __init__(
        self, make: Callable[[], WSGI], port: int, started: Callable[[], None], threads: int = 48
    ) -> None:
        self._make = make
        self._options = {
            "bind": f"127.0.0.1:{port}",
            "workers": 1,
            "threads": threads,
            "timeout": 0,
            "graceful_timeout": 5,
            "loglevel": "error",
            "limit_request_line": 0,
            "control_socket_disable": True,
            "post_fork": lambda _arbiter, _worker: die_with_parent(),
            "post_worker_init": lambda _worker: started(),
        }
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._options.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> WSGI:
        return self._make()

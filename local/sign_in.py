"""What stands for the issuer's sign-in locally: OIDC's authorization code flow with PKCE, and a page that asks who one is in place of a
password. The address printed at the start needs none of it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlencode

from local import demo
from local.issuer import AUDIENCE, Issuer

AUTHORIZE_PATH = "/local/authorize"
TOKEN_PATH = "/local/token"  # noqa: S105 - an address
_CODE_SECONDS = 60
_HOURS = 12
_ASKED = ("client_id", "redirect_uri", "state", "nonce", "code_challenge")

_PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>Sign in – MemberIntel on this machine</title>
  <link rel="stylesheet" href="/console/style.css">
</head>
<body>
  <main class="page narrow">
    <h1>Who are you?</h1>
    <p class="lead">This page stands for your sign-in service while MemberIntel runs on this machine. It asks for no password.</p>
    {people}
    <form class="card stack" method="post">
      <label class="field">Somebody else, by e-mail address<input type="text" name="email" autocomplete="off" required></label>
      <div class="row"><button>Sign in</button></div>
    </form>
  </main>
</body>
</html>
"""
_PERSON = '<form class="stack" method="post"><button class="primary" name="email" value="{email}">Sign in as {email}</button></form>'

StartResponse = Callable[..., Any]


@dataclass(frozen=True)
class _Grant:
    email: str
    asked: Mapping[str, str]
    until: float


class SignIn:
    """The two endpoints of the flow. A code is good once, for a minute, and for whoever holds the verifier of its challenge."""

    def __init__(self, issuer: Issuer, port: int) -> None:
        self._issuer = issuer
        self._consoles = {f"http://{host}:{port}/" for host in ("127.0.0.1", "localhost")}
        self._grants: dict[str, _Grant] = {}
        self._lock = threading.Lock()

    def authorize(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """The page; for its form, the way back to the console with a code."""
        asked = _fields(environ.get("QUERY_STRING", ""))
        if wrong := self._wrong(asked):
            return _answer(start_response, "400 Bad Request", f"{wrong}\n".encode(), "text/plain")
        email = _fields(_body(environ)).get("email", "") if environ["REQUEST_METHOD"] == "POST" else ""
        if not email:
            people = "\n".join(_PERSON.format(email=html.escape(site.email)) for site in demo.SITES)
            return _answer(
                start_response, "200 OK", _PAGE.format(people=people).encode(), "text/html; charset=utf-8"
            )
        code = secrets.token_urlsafe(32)
        with self._lock:
            self._grants[code] = _Grant(email.strip(), asked, time.monotonic() + _CODE_SECONDS)
        back = urlencode({"code": code, "state": asked["state"]})
        start_response("303 See Other", [("Location", f"{asked['redirect_uri']}?{back}")])
        return []

    def token(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """The ID token for a code."""
        given = _fields(_body(environ)) if environ["REQUEST_METHOD"] == "POST" else {}
        with self._lock:
            grant = self._grants.pop(given.get("code", ""), None)
        if grant is None or not _fits(grant, given):
            return _answer(
                start_response, "400 Bad Request", b'{"error": "invalid_grant"}', "application/json"
            )
        token = self._issuer.customer_token(grant.email, hours=_HOURS, nonce=grant.asked["nonce"])
        answer = {"token_type": "Bearer", "id_token": token, "expires_in": _HOURS * 3600}
        return _answer(start_response, "200 OK", json.dumps(answer).encode(), "application/json")

    def _wrong(self, asked: Mapping[str, str]) -> str:
        missing = [name for name in _ASKED if not asked.get(name)]
        if missing:
            return f"missing: {', '.join(missing)}"
        if (asked.get("response_type"), asked.get("code_challenge_method")) != ("code", "S256"):
            return "only response_type=code with code_challenge_method=S256"
        if asked["client_id"] != AUDIENCE or asked["redirect_uri"] not in self._consoles:
            return "no such client"
        return ""


def _fits(grant: _Grant, given: Mapping[str, str]) -> bool:
    digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    same = all(given.get(name) == grant.asked[name] for name in ("client_id", "redirect_uri"))
    return (
        same
        and given.get("grant_type") == "authorization_code"
        and time.monotonic() < grant.until
        and hmac.compare_digest(challenge, grant.asked["code_challenge"])
    )


def _fields(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text).items()}


def _body(environ: dict[str, Any]) -> str:
    raw: bytes = environ["wsgi.input"].read(min(int(environ.get("CONTENT_LENGTH") or 0), 10_000))
    return raw.decode("utf-8", "replace")


def _answer(start_response: StartResponse, status: str, body: bytes, kind: str) -> Iterable[bytes]:
    start_response(
        status, [("Content-Type", kind), ("Cache-Control", "no-store"), ("X-Frame-Options", "DENY")]
    )
    return [body]

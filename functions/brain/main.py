"""`brain`: what a customer may see and change of what is remembered, its OpenAPI document, and the console."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flask import Request, Response

from common import auth, db, erasure_ledger
from common.config import Settings
from common.customer.openapi import document
from common.customer.operations import operations
from common.errors import NotFound
from common.http import Call, Endpoints
from common.warm_up import in_each_worker

endpoints = Endpoints()
in_each_worker(auth.preload, db.preload, erasure_ledger.ledger)
operations.serve(endpoints)

CONSOLE = Path(__file__).parent / "console"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@endpoints.route("GET", "/openapi.json", gate="public")
def openapi(call: Call) -> dict[str, Any]:
    """The OpenAPI document of the customer's paths."""
    return document(operations.table)


@endpoints.route("GET", "/", gate="public")
def console(call: Call) -> Response:
    """The console's page."""
    return console_file(call, "index.html")


@endpoints.route("GET", "/console/sign-in.json", gate="public")
def sign_in(call: Call) -> dict[str, Any]:
    """Where the console signs in (OIDC authorization code with PKCE); null where that is not set up."""
    config = call.config
    if not config.oidc_authorization_url:
        return {"sign_in": None}
    addresses = {
        "authorization_url": config.oidc_authorization_url,
        "token_url": config.oidc_token_url,
    }
    return {"sign_in": {**addresses, "client_id": config.oidc_audience}}


@endpoints.route("GET", "/console/<name>", gate="public")
def console_part(call: Call) -> Response:
    """A file that the page loads."""
    return console_file(call, call.params["name"])


def console_file(call: Call, name: str) -> Response:
    """A file of the console's folder itself, which is flat. Raises NotFound, also for any name that is a path."""
    file = CONSOLE / name
    if Path(name).name != name or file.suffix not in _TYPES or not file.is_file():
        raise NotFound()
    content = file.read_bytes()
    response = Response(content, mimetype=_TYPES[file.suffix])
    response.headers["Content-Security-Policy"] = content_security_policy(call.config)
    response.headers["Cache-Control"] = "no-cache"
    response.set_etag(hashlib.sha256(content).hexdigest()[:32])
    response.make_conditional(call.request)
    return response


def content_security_policy(config: Settings) -> str:
    """What the page may do: it loads nothing from elsewhere and runs nothing inline, text reaches it only as text, and besides us it talks
    only to whoever gives it a token."""
    issuer = urlsplit(config.oidc_token_url)
    connect = f"connect-src 'self' {issuer.scheme}://{issuer.netloc}; " if issuer.netloc else ""
    return (
        f"default-src 'self'; img-src 'self' data:; {connect}object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'"
    )


def main(request: Request) -> Response:
    """The entry point for functions-framework."""
    return endpoints.answer(request)

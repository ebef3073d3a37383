"""Hostile requests get the right problem document, and the next request works."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from common.events import Event, write_push
from local.issuer import AUDIENCE, INTERNAL_AUDIENCE, INTERNAL_CALLER, INTERNAL_ISSUER, ISSUER
from tests.functions.conftest import System

JSON = "application/json"


@pytest.fixture(autouse=True)
def the_next_request_works(system: System) -> Iterator[None]:
    yield
    assert system.chat("Hello").status_code == 200


def post(system: System, data: bytes, content_type: str = JSON, **headers: str) -> Any:
    return system.client("chat").post(
        "/chat", data=data, content_type=content_type, headers={**system.token(system.owner), **headers}
    )


def problem(response: Any) -> tuple[int, str]:
    assert response.mimetype == "application/problem+json"
    document = response.json
    assert set(document) >= {"type", "title", "status", "detail"}
    assert document["status"] == response.status_code
    return response.status_code, document["type"].removeprefix("urn:memberintel:problem:")


BODIES: dict[str, tuple[bytes, str, tuple[int, str]]] = {
    "60 MB": (b'{"message": "' + b"x" * 60_000_000 + b'"}', JSON, (413, "too-large")),
    "one byte over": (b'{"message": "' + b"x" * (64 * 1024 - 14) + b'"}', JSON, (413, "too-large")),
    "no JSON type": (b'{"message": "hi"}', "text/plain", (415, "unsupported-media-type")),
    "a form": (b"message=hi", "application/x-www-form-urlencoded", (415, "unsupported-media-type")),
    "NaN": (b'{"message": NaN}', JSON, (400, "invalid-request")),
    "Infinity": (b'{"message": "hi", "x": -Infinity}', JSON, (400, "invalid-request")),
    "nested 30,000 deep": (
        b'{"message":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        JSON,
        (400, "invalid-request"),
    ),
    "nested 100 deep": (b'{"message":' + b"[" * 100 + b"]" * 100 + b"}", JSON, (400, "invalid-request")),
    "a list": (b"[1]", JSON, (400, "invalid-request")),
    "half": (b'{"message": "hi', JSON, (400, "invalid-request")),
    "not UTF-8": (b'{"message": "\xff\xfe"}', JSON, (400, "invalid-request")),
    "empty": (b"", JSON, (422, "invalid-fields")),
    "an empty message": (b'{"message": "  "}', JSON, (422, "invalid-fields")),
    "a message nobody can see": (
        json.dumps({"message": "\u200b\u2060 \ufeff\u00ad\u0007"}).encode(),
        JSON,
        (422, "invalid-fields"),
    ),
    "the same from useChat": (
        json.dumps(
            {
                "id": "c",
                "messages": [
                    {"id": "m", "role": "user", "parts": [{"type": "text", "text": "\u200b\u200d"}]}
                ],
            }
        ).encode(),
        JSON,
        (422, "invalid-fields"),
    ),
    "a number": (b'{"message": 5}', JSON, (422, "invalid-fields")),
    "8,001 characters": (json.dumps({"message": "x" * 8001}).encode(), JSON, (422, "invalid-fields")),
    "an unknown field": (b'{"message": "hi", "user_id": "someone"}', JSON, (422, "invalid-fields")),
    "no uuid": (b'{"message": "hi", "conversation_id": "1"}', JSON, (422, "invalid-fields")),
    "no messages": (b'{"id": "c", "messages": []}', JSON, (422, "invalid-fields")),
    "a text part without text": (
        b'{"id": "c", "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": null}]}]}',
        JSON,
        (422, "invalid-fields"),
    ),
    "no text": (
        b'{"id": "c", "messages": [{"id": "m", "role": "user", "parts": []}]}',
        JSON,
        (422, "invalid-fields"),
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_is_refused_with_its_problem(system: System, name: str) -> None:
    body, content_type, expected = BODIES[name]
    assert problem(post(system, body, content_type)) == expected


def test_a_body_without_a_length_is_bounded_too(system: System) -> None:
    response = system.client("chat").post(
        "/chat",
        input_stream=__import__("io").BytesIO(b"x" * 200_000),
        content_type=JSON,
        headers=system.token(system.owner),
        environ_overrides={"wsgi.input_terminated": True},
    )
    assert problem(response) == (413, "too-large")


class _Body:
    """A body that arrives in pieces, without a length; what was read of it is counted."""

    def __init__(self, size: int, error: type[Exception] | None = None) -> None:
        self.left, self.read_bytes, self.error = size, 0, error

    def read(self, size: int = -1) -> bytes:
        if self.error and not self.left:
            raise self.error
        piece = min(self.left, size if size >= 0 else self.left)
        self.left -= piece
        self.read_bytes += piece
        return b" " * piece


def send(system: System, body: _Body, **headers: str) -> Any:
    return system.client("chat").post(
        "/chat",
        content_type=JSON,
        headers=headers,
        environ_overrides={"wsgi.input": body, "wsgi.input_terminated": True},
    )


def test_an_endless_body_is_refused_and_left_unread(system: System) -> None:
    body = _Body(10_000_000)
    assert problem(send(system, body, **system.token(system.owner))) == (413, "too-large")
    assert body.read_bytes < 200_000


def test_the_body_of_a_stranger_is_not_read(system: System) -> None:
    body = _Body(10_000_000)
    assert problem(send(system, body)) == (401, "unauthenticated")
    assert body.read_bytes == 0


def test_a_body_that_breaks_off_is_a_bad_request(system: System) -> None:
    class ServersParserFailed(Exception):
        pass

    body = _Body(100, ServersParserFailed)
    assert problem(send(system, body, **system.token(system.owner))) == (400, "invalid-request")


@pytest.mark.parametrize("text", ["\\ud800", "a\\u0000b", "\\udfff\\ud800"])
def test_what_the_database_cannot_store_is_cleaned(system: System, text: str) -> None:
    assert post(system, f'{{"message": "hi {text}"}}'.encode(), Accept=JSON).status_code == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
def test_an_unknown_method_is_refused(system: System, method: str) -> None:
    response = system.client("chat").open("/chat", method=method, headers=system.token(system.owner))
    assert problem(response) == (405, "method-not-allowed")
    assert response.headers["Allow"] == "POST"


@pytest.mark.parametrize("path", ["/", "/chat/x", "/chat/../internal/persist_tool_results", "/%2e%2e/"])
def test_an_unknown_path_is_refused(system: System, path: str) -> None:
    response = system.client("chat").post(path, json={"message": "hi"}, headers=system.token(system.owner))
    assert problem(response) == (404, "not-found")


@pytest.mark.parametrize("function", ["chat", "brain", "admin", "relay_events"])
def test_what_the_framework_itself_refuses_is_a_problem_document_too(system: System, function: str) -> None:
    for path in ("/v1/%0A/x", "/robots.txt"):
        refused = system.client(function).get(path)
        assert problem(refused) == (404, "not-found")
        assert refused.headers["X-Content-Type-Options"] == "nosniff"


def claims(**more: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    base = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "owner@demo.example",
        "iat": now,
        "exp": now + timedelta(hours=1),
    }
    return {k: v for k, v in {**base, **more}.items() if v is not None}


def confused(system: System) -> str:
    """Signed with HMAC, with the public key as the secret."""
    secret = system.issuer.jwks.read_bytes()
    part = lambda value: base64.urlsafe_b64encode(json.dumps(value, default=str).encode()).rstrip(b"=")  # noqa: E731
    now = int(datetime.now(UTC).timestamp())
    signed = part({"alg": "HS256", "kid": "local"}) + b"." + part(claims(iat=now, exp=now + 3600))
    mac = hmac.new(secret, signed, hashlib.sha256).digest()
    return (signed + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


BAD_TOKENS: dict[str, Any] = {
    "none at all": lambda s: "",
    "not a token": lambda s: "abc.def.ghi",
    "unsigned": lambda s: jwt.encode(claims(), None, "none", headers={"kid": "local"}),
    "another key": lambda s: jwt.encode(
        claims(), ec.generate_private_key(ec.SECP256R1()), "ES256", headers={"kid": "local"}
    ),
    "an RSA key": lambda s: jwt.encode(
        claims(),
        rsa.generate_private_key(public_exponent=65537, key_size=2048),
        "RS256",
        headers={"kid": "local"},
    ),
    "an unknown key": lambda s: jwt.encode(
        claims(), ec.generate_private_key(ec.SECP256R1()), "ES256", headers={"kid": "x"}
    ),
    "no key named": lambda s: jwt.encode(claims(), ec.generate_private_key(ec.SECP256R1()), "ES256"),
    "HMAC with the public key": confused,
    "expired": lambda s: s.issuer.sign(claims(exp=datetime.now(UTC) - timedelta(minutes=2))),
    "without an audience": lambda s: s.issuer.sign(claims(aud=None)),
    "for another audience": lambda s: s.issuer.sign(claims(aud="someone-else")),
    "of another issuer": lambda s: s.issuer.sign(claims(iss="https://evil.example")),
    "without a subject": lambda s: s.issuer.sign(claims(sub=None)),
    "issued in the future": lambda s: s.issuer.sign(claims(iat=datetime.now(UTC) + timedelta(hours=1))),
    "meant for internal calls": lambda s: s.issuer.internal_token(),
    "meant for admins": lambda s: s.issuer.admin_assertion(),
}


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_a_bad_token_is_refused(system: System, name: str) -> None:
    headers = {"Authorization": f"Bearer {BAD_TOKENS[name](system)}"}
    response = system.client("chat").post("/chat", json={"message": "hi"}, headers=headers)
    assert problem(response) == (401, "unauthenticated")
    assert response.headers["WWW-Authenticate"] == "Bearer"


def test_a_valid_token_of_an_unknown_person_is_forbidden(system: System) -> None:
    headers = {"Authorization": f"Bearer {system.issuer.customer_token('nobody@x.example')}"}
    response = system.client("chat").post("/chat", json={"message": "hi"}, headers=headers)
    assert problem(response) == (403, "forbidden")


@pytest.mark.parametrize("function", ["persist_tool_results", "relay_events"])
@pytest.mark.parametrize("path", ["/", "/internal/"])
def test_internal_functions_are_closed_to_everyone_else(system: System, function: str, path: str) -> None:
    path = path if path == "/" else path + function
    body = write_push(Event(system.owner.user_id, "tool-results"))
    stranger = {
        "iss": INTERNAL_ISSUER,
        "aud": INTERNAL_AUDIENCE,
        "sub": "x",
        "email": "x@evil.example",
        "email_verified": True,
    }
    unverified = {**stranger, "email": INTERNAL_CALLER, "email_verified": False}
    for headers, expected in (
        ({}, (401, "unauthenticated")),
        (system.token(system.owner), (401, "unauthenticated")),
        ({"Authorization": f"Bearer {system.issuer.sign(stranger)}"}, (403, "forbidden")),
        ({"Authorization": f"Bearer {system.issuer.sign(unverified)}"}, (403, "forbidden")),
    ):
        assert problem(system.client(function).post(path, json=body, headers=headers)) == expected


def test_another_users_ids_are_not_found(system: System) -> None:
    theirs = system.chat("Hello", person=system.other).json
    before = system.database.rows("select * from messages order by position")
    body = {"conversation_id": theirs["conversation_id"]}
    assert problem(system.chat("mine now", **body)) == (404, "not-found")
    assert problem(system.chat("mine now", site_id=str(system.other.site_id))) == (404, "not-found")
    assert system.database.rows("select * from messages order by position") == before


def test_two_users_may_use_the_same_client_ids(system: System) -> None:
    def ask(person: Any, text: str) -> Any:
        body = {
            "id": "chat-1",
            "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": text}]}],
        }
        headers = {**system.token(person), "Accept": JSON}
        return system.client("chat").post("/chat", json=body, headers=headers).json

    mine, theirs = ask(system.owner, "Hello"), ask(system.other, "Good day")
    assert mine["conversation_id"] != theirs["conversation_id"]
    assert ask(system.owner, "Hello")["turn_id"] == mine["turn_id"]


def test_answers_carry_security_headers_and_cors_only_for_listed_origins(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    from common.config import settings

    monkeypatch.setenv("MEMBERINTEL_CORS_ORIGINS", "https://app.example")
    settings.cache_clear()
    listed = system.client("chat").options("/chat", headers={"Origin": "https://app.example"})
    assert listed.status_code == 204
    assert listed.headers["Access-Control-Allow-Origin"] == "https://app.example"
    other = system.client("chat").post("/chat", json={}, headers={"Origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in other.headers
    assert other.headers["X-Content-Type-Options"] == "nosniff"
    assert "Origin" in other.headers["Vary"]
    refused = system.client("chat").post("/chat", json={}, headers={"Origin": "https://app.example"})
    assert refused.headers["Access-Control-Allow-Origin"] == "https://app.example", "errors can be read too"

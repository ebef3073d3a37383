"""The local issuer's sign-in: a code is good once, for the one console that asked, and for whoever holds the verifier."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from werkzeug.test import Client, TestResponse

from local.issuer import AUDIENCE, Issuer
from local.sign_in import AUTHORIZE_PATH, TOKEN_PATH, SignIn

VERIFIER = "v" * 43
CONSOLE = "http://localhost:8080/"
ASKED = {
    "response_type": "code",
    "client_id": AUDIENCE,
    "redirect_uri": CONSOLE,
    "state": "the state",
    "nonce": "the nonce",
    "code_challenge": base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest())
    .rstrip(b"=")
    .decode(),
    "code_challenge_method": "S256",
}


@pytest.fixture
def client(tmp_path: Path) -> Client:
    flow = SignIn(Issuer(tmp_path), 8080)

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        answer = flow.token if environ["PATH_INFO"] == TOKEN_PATH else flow.authorize
        return answer(environ, start_response)

    return Client(app)


def code(client: Client) -> str:
    """A code for the owner."""
    back = client.post(AUTHORIZE_PATH, query_string=ASKED, data={"email": "owner@demo.example"})
    assert back.status_code == 303
    address = urlsplit(back.headers["Location"])
    given = parse_qs(address.query)
    assert f"{address.scheme}://{address.netloc}{address.path}" == CONSOLE
    assert given["state"] == ["the state"]
    return given["code"][0]


def exchange(client: Client, **other: str) -> TestResponse:
    given = {
        "grant_type": "authorization_code",
        "redirect_uri": CONSOLE,
        "client_id": AUDIENCE,
        "code_verifier": VERIFIER,
    }
    return client.post(TOKEN_PATH, data={**given, **other})


def test_a_code_is_exchanged_once_for_a_token_with_its_nonce(client: Client) -> None:
    once = code(client)
    token = exchange(client, code=once).json["id_token"]
    claims = jwt.decode(token, options={"verify_signature": False})
    assert (claims["sub"], claims["aud"], claims["nonce"]) == ("owner@demo.example", AUDIENCE, "the nonce")
    assert exchange(client, code=once).json == {"error": "invalid_grant"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"code_verifier": "w" * 43},
        {"code_verifier": ""},
        {"client_id": "another"},
        {"redirect_uri": "http://127.0.0.1:8080/"},
        {"grant_type": "refresh_token"},
        {"code": "guessed"},
    ],
    ids=str,
)
def test_a_code_is_of_no_use_to_anybody_else(client: Client, wrong: dict[str, str]) -> None:
    refused = exchange(client, **{"code": code(client), **wrong})
    assert (refused.status_code, refused.json) == (400, {"error": "invalid_grant"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"redirect_uri": "https://evil.example/"},
        {"redirect_uri": "http://localhost:8081/"},
        {"client_id": "another"},
        {"code_challenge_method": "plain"},
        {"response_type": "token"},
        {"state": ""},
        {"nonce": ""},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_sign_in_that_is_not_ours_is_not_begun(client: Client, method: str, wrong: dict[str, str]) -> None:
    refused = client.open(
        AUTHORIZE_PATH, method=method, query_string={**ASKED, **wrong}, data={"email": "owner@demo.example"}
    )
    assert refused.status_code == 400
    assert "Location" not in refused.headers

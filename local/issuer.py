"""The laptop's token issuer: a key of its own in the data folder, and tokens that pass the same checks as the real issuers'."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

ISSUER = "https://issuer.memberintel.localhost"
AUDIENCE = "memberintel"
INTERNAL_ISSUER = f"{ISSUER}/internal"
INTERNAL_AUDIENCE = "memberintel-internal"
INTERNAL_CALLER = "scheduler@memberintel.localhost"
ACCESS_ISSUER = f"{ISSUER}/access"
ACCESS_AUDIENCE = "memberintel-admin"
ADMIN = "admin@demo.example"
FILES = ("issuer.pem", "issuer.jwks.json")
_KEY_ID = "local"


class Issuer:
    """Signs tokens with the key of a data folder, which it makes on first use."""

    def __init__(self, folder: Path) -> None:
        self._private, self.jwks = (folder / name for name in FILES)
        if not (self._private.exists() and self.jwks.exists()):
            self._make_key()

    def settings(self, keys: str) -> dict[str, str]:
        """The settings under which the system trusts this issuer, whose public keys are served at the address `keys`."""
        return {
            "MEMBERINTEL_OIDC_ISSUER": ISSUER,
            "MEMBERINTEL_OIDC_AUDIENCE": AUDIENCE,
            "MEMBERINTEL_OIDC_JWKS_URL": keys,
            "MEMBERINTEL_INTERNAL_ISSUER": INTERNAL_ISSUER,
            "MEMBERINTEL_INTERNAL_AUDIENCE": INTERNAL_AUDIENCE,
            "MEMBERINTEL_INTERNAL_JWKS_URL": keys,
            "MEMBERINTEL_INTERNAL_CALLERS": INTERNAL_CALLER,
            "MEMBERINTEL_ACCESS_ISSUER": ACCESS_ISSUER,
            "MEMBERINTEL_ACCESS_AUDIENCE": ACCESS_AUDIENCE,
            "MEMBERINTEL_ACCESS_JWKS_URL": keys,
            "MEMBERINTEL_ADMIN_EMAILS": ADMIN,
        }

    def customer_token(
        self, email: str, *, hours: float = 12, now: datetime | None = None, nonce: str | None = None
    ) -> str:
        """A customer's ID token; the subject of a local user is their e-mail address. `nonce` comes back as a sign-in gave it."""
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": email, "email": email}
        return self.sign(claims if nonce is None else {**claims, "nonce": nonce}, hours=hours, now=now)

    def internal_token(self) -> str:
        """A token as Pub/Sub and Scheduler bring it."""
        claims = {"iss": INTERNAL_ISSUER, "aud": INTERNAL_AUDIENCE, "sub": INTERNAL_CALLER}
        return self.sign({**claims, "email": INTERNAL_CALLER, "email_verified": True})

    def admin_assertion(self, email: str = ADMIN) -> str:
        """An assertion as Cloudflare Access brings it."""
        return self.sign({"iss": ACCESS_ISSUER, "aud": ACCESS_AUDIENCE, "sub": email, "email": email})

    def sign(self, claims: dict[str, Any], *, hours: float = 12, now: datetime | None = None) -> str:
        """`claims`, issued now, as a signed token."""
        issued = now or datetime.now(UTC)
        times = {"iat": issued, "exp": issued + timedelta(hours=hours)}
        return jwt.encode({**times, **claims}, self._private.read_bytes(), "ES256", headers={"kid": _KEY_ID})

    def _make_key(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        with os.fdopen(os.open(self._private, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(pem)
        public = json.loads(ECAlgorithm.to_jwk(key.public_key()))
        public |= {"kid": _KEY_ID, "alg": "ES256", "use": "sig"}
        self.jwks.write_text(json.dumps({"keys": [public]}))

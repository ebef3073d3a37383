"""Who is calling: verifies tokens and nothing else. There is no switch that turns it off; a laptop has its own issuer.

Three kinds of caller: customers (an OIDC ID token), admins (a Cloudflare Access assertion and an allow-list), and Google's Pub/Sub and
Scheduler (an OIDC token of a named service account).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from common.config import Settings
from common.errors import Forbidden, Unauthenticated, Unavailable
from common.once import once

if TYPE_CHECKING:
    import jwt

# Asymmetric only: with a shared-secret algorithm allowed, the public key would serve to sign.
_ALGORITHMS = ["RS256", "ES256"]
_REQUIRED = ["exp", "iat", "iss", "aud", "sub"]
_LEEWAY_SECONDS = 30


class Identity(NamedTuple):
    """A customer as the issuer knows them. `issued_at` lets an erasure refuse the tokens that came before it."""

    issuer: str
    subject: str
    email: str
    issued_at: datetime


def customer(authorization: str | None, config: Settings) -> Identity:
    """The customer behind a bearer token. Raises Unauthenticated, or Unavailable when the issuer's keys cannot be had."""
    claims = _verify(_bearer(authorization), config.oidc_issuer, config.oidc_audience, config.oidc_jwks_url)
    issued = datetime.fromtimestamp(int(claims["iat"]), UTC)
    return Identity(str(claims["iss"]), str(claims["sub"]), str(claims.get("email", "")), issued)


def admin(assertion: str | None, config: Settings, *, authorization: str | None = None) -> str:
    """The e-mail address of the admin behind a Cloudflare Access assertion. Raises Unauthenticated, Unavailable, or Forbidden: also for
    a customer, whose valid token (as the assertion or in `authorization`) says who they are, and that they are no admin."""
    try:
        claims = _verify(
            assertion or "", config.access_issuer, config.access_audience, config.access_jwks_url
        )
    except Unauthenticated:
        if _is_customer(assertion or _bearer(authorization), config):
            raise Forbidden() from None
        raise
    email = str(claims.get("email", ""))
    if email not in config.admin_emails:
        raise Forbidden()
    return email


def _is_customer(token: str, config: Settings) -> bool:
    try:
        customer(f"Bearer {token}", config)
    except Unauthenticated:
        return False
    return True


def internal(authorization: str | None, config: Settings) -> str:
    """The service account behind a call from Pub/Sub or Scheduler. Raises Unauthenticated, Forbidden or Unavailable."""
    claims = _verify(
        _bearer(authorization), config.internal_issuer, config.internal_audience, config.internal_jwks_url
    )
    email = str(claims.get("email", ""))
    if not claims.get("email_verified") or email not in config.internal_callers:
        raise Forbidden()
    return email


def preload(config: Settings) -> None:
    """Import what checks tokens ahead of the first request."""
    import jwt  # noqa: F401


def _bearer(authorization: str | None) -> str:
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _verify(token: str, issuer: str, audience: str, jwks_url: str) -> dict[str, Any]:
    # Without an issuer or audience PyJWT would skip that check, so a missing setting must refuse, not allow.
    if not (token and issuer and audience and jwks_url):
        raise Unauthenticated()
    import jwt  # with all of cryptography: a tenth of a start, and nobody is checked before the first request

    try:
        key = _keys(jwks_url).get_signing_key_from_jwt(token)
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=_ALGORITHMS,
            issuer=issuer,
            audience=audience,
            leeway=_LEEWAY_SECONDS,
            options={"require": _REQUIRED},
        )
    except jwt.PyJWKClientConnectionError as exc:
        raise Unavailable("The issuer's keys cannot be read right now.") from exc
    except (jwt.PyJWTError, ValueError) as exc:
        raise Unauthenticated() from exc
    return claims


@once
def _keys(url: str) -> jwt.PyJWKClient:
    """One client an address: it caches the keys and looks again, at intervals, for a key it does not know."""
    import jwt

    return jwt.PyJWKClient(url, cache_jwk_set=True, lifespan=300, timeout=5)

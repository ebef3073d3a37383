"""The one error family. A class's docstring is the public message; `status` and `type` are its HTTP face.

Raise these in the domain; `common.http` turns them into RFC 9457 problem documents, the command into one line.
"""

from __future__ import annotations

from typing import Any


class AppError(Exception):
    """Something went wrong on our side. Try again; if it stays, tell the operator."""

    status = 500
    type = "internal"

    def __init__(self, detail: str | None = None, **extra: Any) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip()
        self.extra = extra
        super().__init__(self.detail)


class InvalidRequest(AppError):
    """The request cannot be read. Send one JSON object as the documentation describes."""

    status = 400
    type = "invalid-request"


class Unauthenticated(AppError):
    """Sign in: the request carries no valid token."""

    status = 401
    type = "unauthenticated"


class Forbidden(AppError):
    """This account may not do that."""

    status = 403
    type = "forbidden"


class NotFound(AppError):
    """There is no such thing here, or it is not yours."""

    status = 404
    type = "not-found"


class MethodNotAllowed(AppError):
    """This address does not take that method."""

    status = 405
    type = "method-not-allowed"


class Conflict(AppError):
    """Something else is changing this right now. Wait a moment and try again."""

    status = 409
    type = "conflict"


class StaleVersion(AppError):
    """This was changed since you read it. Read it again, then repeat the edit."""

    status = 412
    type = "stale-version"


class TooLarge(AppError):
    """The request is larger than allowed."""

    status = 413
    type = "too-large"


class UnsupportedMediaType(AppError):
    """Send the request as application/json."""

    status = 415
    type = "unsupported-media-type"


class InvalidFields(AppError):
    """Some fields of the request are missing or wrong."""

    status = 422
    type = "invalid-fields"


class LimitReached(AppError):
    """A limit of this account is reached."""

    status = 429
    type = "limit-reached"

    def __init__(self, detail: str | None = None, *, retry_after: int = 60, **extra: Any) -> None:
        super().__init__(detail, **extra)
        self.retry_after = retry_after


class Unavailable(AppError):
    """A part that this needs does not answer. Nothing was lost; try again shortly."""

    status = 503
    type = "unavailable"


class ModelUnavailable(Unavailable):
    """The language model does not answer right now. Your message is kept; try again shortly."""

    type = "model-unavailable"


class ConfigError(AppError):
    """The settings are wrong."""

    type = "config"

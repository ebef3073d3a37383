"""A whole turn on a deployed system, over HTTP as a customer: its streamed answer, its snapshot, and its log events read back.

The only module that imports the client of Cloud Logging. What fails is a SmokeFailed whose text says which part of the way was missing.
"""

from __future__ import annotations

import http.client
import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from common.errors import AppError

QUESTION = "How many active members do I have?"  # a skill's, which must call a tool to answer it
TURN_EVENTS = frozenset({"turns_total", "turn_latency_ms", "time_to_first_token_ms", "llm_cost_usd"})
SNAPSHOT_EVENT = "tool_results_persisted_total"
_POLL_SECONDS = 1.0

T = TypeVar("T")


class SmokeFailed(AppError):
    """The deployed system does not do what a turn needs."""


@dataclass(frozen=True)
class Turn:
    """A finished turn. `trace` is the id under which its log lines are found, `began` when it was sent."""

    conversation_id: str
    message_id: str
    trace: str
    began: datetime
    model: str
    characters: int


def sign_in(file: Path) -> str:
    """The ID token of the smoke user. `file` holds JSON: `token_url`, the issuer's token endpoint, and `form`, what to post to it."""
    try:
        asked = json.loads(file.read_text(encoding="utf-8"))
        request = urllib.request.Request(asked["token_url"], data=urlencode(asked["form"]).encode())
        with _reached("The issuer"), _open(request, timeout=30) as response:
            return str(json.load(response)["id_token"])
    except (KeyError, TypeError, ValueError):
        raise SmokeFailed(
            f"{file} holds no `token_url` and `form`, or the issuer's answer no `id_token`."
        ) from None


def converse(url: str, token: str) -> Turn:
    """Ask one question and read the stream of its answer to the end. A deployed system (https) must not answer by the offline model."""
    trace, began = secrets.token_hex(16), datetime.now(UTC)
    headers = {"Accept": "text/event-stream", "traceparent": f"00-{trace}-{secrets.token_hex(8)}-01"}
    request = _request(url, "POST", "/chat", token, {"message": QUESTION}, headers)
    with _reached("POST /chat"), _open(request, timeout=120) as response:
        lines = [line.decode().strip() for line in response]
    try:
        return _turn(lines, trace, began, deployed=urlsplit(url).scheme == "https")
    except (KeyError, TypeError, ValueError):
        raise SmokeFailed("POST /chat answered with what is no stream of an answer.") from None


def _turn(lines: list[str], trace: str, began: datetime, *, deployed: bool) -> Turn:
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    if errors := [chunk["errorText"] for chunk in chunks if chunk["type"] == "error"]:
        raise SmokeFailed(f"The turn ended with an error: {errors[0]}")
    found = {chunk["type"]: chunk.get("messageMetadata", {}) for chunk in chunks}
    if "data: [DONE]" not in lines or found.get("finish", {}).get("status") != "complete":
        raise SmokeFailed("The stream of the answer ended before the answer did.")
    said = "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")
    if not said.strip():
        raise SmokeFailed("The answer was complete and empty.")
    if not any(chunk["type"] == "tool-output-available" for chunk in chunks):
        raise SmokeFailed("The answer came without a tool's result: has the smoke user a site with data?")
    if found["finish"]["provider"] == "offline" and deployed:
        raise SmokeFailed("The offline model answered: the service has no key of a provider.")
    return Turn(
        conversation_id=found["start"]["conversation_id"],
        message_id=next(chunk["messageId"] for chunk in chunks if chunk["type"] == "start"),
        trace=trace,
        began=began,
        model=found["finish"]["model"],
        characters=len(said),
    )


def find_snapshot(url: str, token: str, turn: Turn, seconds: float) -> str:
    """The tool of the snapshot that was written of `turn`, waited for at most so long: an event brings it."""
    path = f"/v1/snapshots?conversation_id={turn.conversation_id}"

    def look() -> str | None:
        found = _call(url, "GET", path, token)
        try:
            return next(
                (str(i["tool_name"]) for i in found["items"] if i["message_id"] == turn.message_id), None
            )
        except (KeyError, TypeError):
            raise SmokeFailed("GET /v1/snapshots answered with what is no list of snapshots.") from None

    return _until(
        look,
        seconds,
        lambda: f"No snapshot of the turn after {seconds:.0f} s: is its event dead or undelivered?",
    )


def delete_conversation(url: str, token: str, turn: Turn) -> None:
    """Take back what the turn left, so that the smoke user's history does not grow."""
    _call(url, "DELETE", f"/v1/conversations/{turn.conversation_id}", token)


def logging_client(project: str) -> Any:
    """A client of Cloud Logging, as whoever runs the command."""
    from google.cloud import logging

    return logging.Client(project=project)  # type: ignore[no-untyped-call]


def read_events(client: Any, turn: Turn, seconds: float) -> str:
    """Read the events of `turn` and of its snapshot back, waited for at most so long; returns the revision that wrote them."""
    ours = f'trace="projects/{client.project}/traces/{turn.trace}"'
    since = f'timestamp>="{turn.began.isoformat()}"'
    missing: set[str] = set()

    def look() -> str | None:
        entries = [
            *_entries(client, f"{_named(TURN_EVENTS)} AND {ours} AND {since}"),
            *_entries(client, f"{_named({SNAPSHOT_EVENT})} AND {since}"),
        ]
        found = {entry.payload["event"]: entry for entry in entries}
        missing.clear()
        missing.update({*TURN_EVENTS, SNAPSHOT_EVENT} - set(found))
        if missing:
            return None
        if found["turns_total"].payload["outcome"] != "complete":
            raise SmokeFailed("The log says that the turn was not completed.")
        return str(found["turns_total"].resource.labels.get("revision_name", "unknown"))

    return _until(
        look, seconds, lambda: f"Not in the log after {seconds:.0f} s: {', '.join(sorted(missing))}."
    )


def _named(events: set[str] | frozenset[str]) -> str:
    names = " OR ".join(f'"{event}"' for event in sorted(events))
    return f'resource.type="cloud_run_revision" AND jsonPayload.event=({names})'


def _entries(client: Any, wanted: str) -> list[Any]:
    from google.api_core.exceptions import GoogleAPIError

    try:
        return list(client.list_entries(filter_=wanted, max_results=100))
    except GoogleAPIError as exc:
        raise SmokeFailed(f"Cloud Logging cannot be read: {type(exc).__name__}.") from exc


def _call(url: str, method: str, path: str, token: str) -> Any:
    with (
        _reached(f"{method} {path.split('?')[0]}"),
        _open(_request(url, method, path, token), timeout=30) as response,
    ):
        return json.loads(response.read() or b"null")


def _request(
    url: str,
    method: str,
    path: str,
    token: str,
    body: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> urllib.request.Request:
    given = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **(headers or {})}
    data = None if body is None else json.dumps(body).encode()
    return urllib.request.Request(url.rstrip("/") + path, data=data, headers=given, method=method)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Leaves a redirect an error: urllib would take the token along, to whatever host is named."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _open(request: urllib.request.Request, timeout: float) -> Any:
    return urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout)


@contextmanager
def _reached(what: str) -> Iterator[None]:
    """A refusal or a broken connection as one line, with the problem's own words where the answer is a problem document."""
    try:
        yield
    except urllib.error.HTTPError as exc:
        raise SmokeFailed(f"{what} answered {exc.code}: {_problem(exc) or exc.reason}") from None
    except OSError as exc:
        raise SmokeFailed(f"{what} cannot be reached: {getattr(exc, 'reason', exc)}.") from None
    except (http.client.HTTPException, ValueError) as exc:
        raise SmokeFailed(f"{what} answered with what cannot be read: {type(exc).__name__}.") from None


def _problem(answer: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(answer.read())["detail"])
    except (KeyError, TypeError, ValueError):
        return ""


def _until(look: Callable[[], T | None], seconds: float, missing: Callable[[], str]) -> T:
    """What `look` finds, tried until it does. SmokeFailed with what is `missing` once the time is over."""
    deadline = time.monotonic() + seconds
    while (found := look()) is None:
        if time.monotonic() >= deadline:
            raise SmokeFailed(missing())
        time.sleep(_POLL_SECONDS)
    return found

"""The outbox: events written with the change they tell of, published after its commit, deleted with their effect.

A published message carries an event's id, type and version, never content or a user's id.
"""

from __future__ import annotations

import base64
import json
import urllib.request
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, Row

from common import log
from common.config import Settings
from common.db import (
    ONE_PLAN,
    ask_with_next,
    commit_with_next,
    error_name,
    retried,
    set_local,
    statement,
    transaction,
    went_away,
)
from common.errors import InvalidRequest, Unavailable
from common.once import once
from common.text import to_json

# Topic -> the function that consumes it.
CONSUMERS = {"tool-results": "persist_tool_results", "session-ended": "generate_wrap_up"}
MAX_ATTEMPTS = 5
POSTPONEMENTS_MINUTES = (1, 5, 30, 120)
UNPUBLISHED_AFTER = timedelta(seconds=30)
PUBLISHED_AGAIN_AFTER = timedelta(minutes=10)
RELAY_BATCH = 500


@dataclass(frozen=True)
class Event:
    """What travels: enough to find the row, and nothing that is the customer's."""

    id: uuid.UUID
    type: str
    version: int = 1


class Publisher(Protocol):
    """Hands events over for delivery. Returns when the other side has them; raises when it does not take them."""

    def publish(self, events: Sequence[Event]) -> None: ...

    def publish_rows(self, topic: str, rows: Sequence[dict[str, Any]]) -> None: ...


def add_event(
    connection: Connection,
    *,
    user_id: uuid.UUID,
    conversation_id: uuid.UUID | None,
    type: str,
    payload: dict[str, Any],
    now: datetime,
    deliver_after: datetime | None = None,
    dedupe_key: str | None = None,
) -> Event:
    """Write an event in the caller's transaction. With a `dedupe_key` it replaces the one still waiting under that key; moving
    `deliver_after` clears the mark of publication."""
    row = connection.execute(
        sa.text("""
            insert into outbox_events
                (user_id, conversation_id, type, payload, dedupe_key, deliver_after, created_at)
            values (:user_id, :conversation_id, :type, cast(:payload as jsonb), :dedupe_key, :deliver_after, :now)
            on conflict (dedupe_key) do update set
                payload = excluded.payload, deliver_after = excluded.deliver_after, published_at = null,
                attempts = 0, postponements = 0, dead_at = null
            returning id
        """),
        {
            "user_id": user_id,
            "conversation_id": conversation_id,
            "type": type,
            "payload": to_json(payload),
            "dedupe_key": dedupe_key,
            "deliver_after": deliver_after or now,
            "now": now,
        },
    ).one()
    return Event(row.id, type)


def publish_now(events: Sequence[Event], publisher: Publisher) -> None:
    """Publish after the commit, best effort: what fails here, or is lost on the way, `relay` publishes later."""
    if not events:
        return
    try:
        publisher.publish(events)
    except Exception as exc:  # the edge to another system; the rows are safe
        log.write_exception("events not published", exc, count=len(events))


def stream_now(topic: str, rows: Sequence[dict[str, Any]], publisher: Publisher) -> None:
    """Publish rows that a subscription writes into BigQuery, after the commit and best effort: the database has them, and the
    comparison of both sinks counts what was lost."""
    if not rows:
        return
    try:
        publisher.publish_rows(topic, rows)
    except Exception as exc:  # the edge to another system
        log.write_exception("rows not published", exc, count=len(rows))


def relay(publisher: Publisher, *, now: datetime, source: Engine | None = None) -> int:
    """Publish the events that are due and were not published, or whose consumer never finished; returns how many.

    Rows are claimed before they are published, and several relays may run at once: each takes rows that no other has.
    """
    with transaction("jobs", source=source) as connection:
        claimed = connection.execute(
            sa.text("""
                update outbox_events set published_at = :now
                where id in (
                    select id from outbox_events
                    where dead_at is null and deliver_after <= :now and created_at <= :unpublished_before
                      and (published_at is null or published_at <= :published_before)
                    order by deliver_after
                    limit :batch
                    for update skip locked)
                returning id, type, version
            """),
            {
                "now": now,
                "unpublished_before": now - UNPUBLISHED_AFTER,
                "published_before": now - PUBLISHED_AGAIN_AFTER,
                "batch": RELAY_BATCH,
            },
        ).all()
        oldest = connection.scalar(
            sa.text(
                "select min(deliver_after) from outbox_events where dead_at is null and deliver_after <= :now"
            ),
            {"now": now},
        )
    log.emit("outbox_oldest_seconds", seconds=round((now - oldest).total_seconds()) if oldest else 0)
    events = [Event(row.id, row.type, row.version) for row in claimed]
    try:
        if events:
            publisher.publish(events)
    except Exception:
        with transaction("jobs", source=source) as connection:
            connection.execute(
                sa.text("update outbox_events set published_at = null where id = any(cast(:ids as uuid[]))"),
                {"ids": [event.id for event in events]},
            )
        raise
    return len(events)


Effect = Callable[[Connection, uuid.UUID, datetime], None]
"""What an event, by its id, asks for now: one statement with DUE, with which the event is deleted and its transaction committed."""

DUE = """
    e.id = :event_id and e.user_id = cast(nullif(current_setting('app.user_id', true), '') as uuid)
    and e.dead_at is null and e.deliver_after <= :now
"""
"""The condition on `outbox_events e` under which an effect changes anything: that the event was locked, and is due."""


UNHURRIED = {"synchronous_commit": "off"}
"""A consumer's commit does not wait for the disk. A crash of the server that takes it back gives the event back with it, and the relay
publishes it again."""


def consume(event: Event, effect: Effect, *, now: datetime, source: Engine | None = None) -> str:
    """Carry out `effect` for `event`, which deletes the event, in one transaction scoped to its user, and in one round trip.

    Returns "done", or why there was nothing to do: "gone" (delivered before, or its user or conversation was deleted), "early" (not
    due yet) or "dead". A failure counts an attempt and is raised; the fifth marks the row dead, keeps it, and returns "dead".
    Deliveries of the same event wait for each other, so that one takes effect.
    """

    def work() -> str:
        with transaction("jobs", source=source) as connection:
            set_local(connection, {**ONE_PLAN, **UNHURRIED})
            locked = ask_with_next(connection, _LOCK, {"id": event.id, "type": event.type})
            commit_with_next(connection)
            effect(connection, event.id, now)
            return not_now(locked(), now) or "done"

    # An erasure and an effect lock the same rows in other orders; whoever lost finds the event gone, which is no failure of it.
    return attempt(event, lambda: retried(work, attempts=3), now=now, source=source)


def attempt(event: Event, work: Callable[[], str], *, now: datetime, source: Engine | None = None) -> str:
    """What `work` returns. Its failure counts as an attempt of `event` and is raised; the fifth returns "dead"."""
    try:
        return work()
    except Exception as exc:
        if went_away(exc):
            raise Unavailable() from exc  # no fault of the event's
        if fail_event(event, error_name(exc), now=now, source=source):
            log.write_exception("event is dead", exc, event_type=event.type)
            return "dead"
        raise


def consume_push(
    body: dict[str, Any], effect: Effect, *, now: datetime, source: Engine | None = None
) -> dict[str, str]:
    """`consume` for a Pub/Sub push, and what became of it."""
    return receive_push(body, lambda event: consume(event, effect, now=now, source=source))


def receive_push(body: dict[str, Any], consumer: Callable[[Event], str]) -> dict[str, str]:
    """What `consumer` made of the pushed event. A message that is none of ours is acknowledged with an error line: no retry would
    mend it."""
    try:
        event = read_push(body)
    except InvalidRequest:
        log.write("unreadable push message", severity="ERROR")
        return {"outcome": "unreadable"}
    return {"outcome": consumer(event)}


_LOCK = statement(
    "id user_id conversation_id deliver_after dead_at trigger scoped",
    """
    select id, user_id, conversation_id, deliver_after, dead_at, payload->>'trigger',
           set_config('app.user_id', cast(user_id as text), true)
    from outbox_events where id = :id and type = :type for update
""",
)


def lock_event(connection: Connection, event: Event) -> Row[Any] | None:
    """The row of `event`, locked, and the transaction scoped to its user; None when there is no such row. The payload, which may be large,
    stays in the database, where the effect reads it."""
    return connection.execute(_LOCK, {"id": event.id, "type": event.type}).first()


def delete_event(connection: Connection, event: Event, user_id: uuid.UUID) -> None:
    """Remove an event whose effect is written in this transaction; only its consumer does."""
    connection.execute(
        sa.text("delete from outbox_events where id = :id and user_id = :user_id"),
        {"id": event.id, "user_id": user_id},
    )


def not_now(row: Any, now: datetime) -> str:
    """Why a row that was locked, or None, is not to be consumed now; empty when it is."""
    if row is None:
        return "gone"
    if row.dead_at is not None:
        return "dead"
    return "early" if row.deliver_after > now else ""


def fail_event(event: Event, error: str, *, now: datetime, source: Engine | None = None) -> bool:
    """Count a failed attempt; returns whether the event is dead now. `error` is a name or a code, never a message."""
    with transaction("jobs", source=source) as connection:
        row = connection.execute(
            sa.text("""
                update outbox_events
                set attempts = attempts + 1, last_error = :error,
                    dead_at = case when attempts + 1 >= :most then cast(:now as timestamptz) end
                where id = :id and dead_at is null
                returning dead_at
            """),
            {"id": event.id, "error": error, "most": MAX_ATTEMPTS, "now": now},
        ).first()
    dead = row is not None and row.dead_at is not None
    if dead:
        log.emit("events_dead_total", severity="ERROR", event_type=event.type)
    return dead


def postpone_event(event: Event, *, now: datetime, source: Engine | None = None) -> None:
    """Move an event that met a provider's outage, which is no failure of the event: by 1, 5, 30 and then 120 minutes each time."""
    with transaction("jobs", source=source) as connection:
        connection.execute(
            sa.text("""
                update outbox_events
                set deliver_after = cast(:now as timestamptz) + make_interval(mins =>
                        (cast(:minutes as int[]))[least(postponements + 1, :most)]),
                    postponements = postponements + 1, published_at = null
                where id = :id and dead_at is null
            """),
            {
                "id": event.id,
                "now": now,
                "minutes": list(POSTPONEMENTS_MINUTES),
                "most": len(POSTPONEMENTS_MINUTES),
            },
        )


def read_push(body: dict[str, Any]) -> Event:
    """The event in a Pub/Sub push envelope. Raises InvalidRequest for anything else, which no retry would mend."""
    try:
        return decode(base64.b64decode(body["message"]["data"], validate=True))
    except (KeyError, TypeError, ValueError):
        raise InvalidRequest("This is no Pub/Sub push message of ours.") from None


def write_push(event: Event) -> dict[str, Any]:
    """The envelope in which Pub/Sub pushes `event`."""
    return {"message": {"messageId": str(uuid.uuid4()), "data": base64.b64encode(encode(event)).decode()}}


def encode(event: Event) -> bytes:
    """The bytes that are published for `event`."""
    return to_json({"id": str(event.id), "type": event.type, "version": event.version}).encode()


def decode(message: bytes) -> Event:
    """The event in the bytes that `encode` made. Raises ValueError for any others."""
    try:
        fields = json.loads(message)
        return Event(uuid.UUID(fields["id"]), str(fields["type"]), int(fields["version"]))
    except (AttributeError, KeyError, TypeError, RecursionError, OverflowError) as exc:
        raise ValueError("no event of ours") from exc


class PubSubPublisher:
    """Google Cloud Pub/Sub. Waits for the server's acknowledgement: nothing runs after the response on Cloud Run."""

    def __init__(self, project: str) -> None:
        from google.cloud import pubsub_v1  # type: ignore[attr-defined]

        self._project = project
        self._client = pubsub_v1.PublisherClient()

    def publish(self, events: Sequence[Event]) -> None:
        futures = [
            self._client.publish(self._client.topic_path(self._project, event.type), encode(event))
            for event in events
        ]
        for future in futures:
            future.result(timeout=10)

    def publish_rows(self, topic: str, rows: Sequence[dict[str, Any]]) -> None:
        path = self._client.topic_path(self._project, topic)
        futures = [self._client.publish(path, to_json(row).encode()) for row in rows]
        for future in futures:
            future.result(timeout=10)


class LocalPublisher:
    """The laptop's Pub/Sub (`local.dispatcher`), which delivers as a push subscription would."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url

    def publish(self, events: Sequence[Event]) -> None:
        for event in events:
            request = urllib.request.Request(f"{self._base_url}/topics/{event.type}", data=encode(event))
            with urllib.request.urlopen(request, timeout=10):
                pass

    def publish_rows(self, topic: str, rows: Sequence[dict[str, Any]]) -> None:
        """Nothing: on a laptop there is no BigQuery that would listen."""


@once
def _publisher(project: str, local_url: str) -> Publisher:
    return PubSubPublisher(project) if project else LocalPublisher(local_url)


def publisher(config: Settings) -> Publisher:
    """This process's publisher, made on first use."""
    return _publisher(config.pubsub_project, config.local_dispatcher_url)

"""The laptop's Pub/Sub and Scheduler: posts events and schedules to the functions as Google's would, with a token of the local issuer.

What is waiting here when the process is killed is lost; `relay_events` publishes it again, as it would in the cloud.
"""

from __future__ import annotations

import json
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from common import log
from common.events import CONSUMERS, Event, decode, write_push
from common.text import to_json

# Daily at an hour (UTC), or every so many seconds. In the cloud the relay runs each minute.
SCHEDULE: dict[str, int | timedelta] = {
    "relay_events": timedelta(seconds=15),
    "backfill_wrap_ups": 2,
    "nightly_refresh": 3,
    "export_bigquery": 4,
}


class Dispatcher:
    """Delivers events to their consumers, one after the other, and calls the scheduled functions when they are due."""

    def __init__(self, base_url: str, token: Callable[[], str], functions: Iterable[str]) -> None:
        self._base_url = base_url
        self._token = token
        self._functions = set(functions)
        self._waiting: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def start(self) -> None:
        """Begin to deliver and to keep time, in threads that end with the process."""
        threading.Thread(target=self._deliver, name="local-pubsub", daemon=True).start()
        threading.Thread(target=self._keep_time, name="local-scheduler", daemon=True).start()

    def publish(self, topic: str, message: bytes) -> None:
        """Take over a published message. Raises ValueError for what is none."""
        event = decode(message)
        if topic not in CONSUMERS or event.type != topic:
            raise ValueError("unknown topic")
        self._waiting.put(event)

    def call(self, function: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of an internal function. Raises urllib.error.HTTPError for an error status."""
        request = urllib.request.Request(
            f"{self._base_url}/internal/{function}",
            data=to_json(body).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self._token()}"},
        )
        with urllib.request.urlopen(request, timeout=1800) as response:
            answer: dict[str, Any] = json.load(response)
            return answer

    def _deliver(self) -> None:
        while True:
            event = self._waiting.get()
            if CONSUMERS[event.type] in self._functions:
                self._try(CONSUMERS[event.type], write_push(event))

    def _keep_time(self) -> None:
        pause = threading.Event()
        last = datetime.now(UTC)
        while not pause.wait(5):
            now = datetime.now(UTC)
            for function in due(last, now):
                if function in self._functions:
                    self._try(function, {})
            last = now

    def _try(self, function: str, body: dict[str, Any]) -> None:
        try:
            self.call(function, body)
        except Exception as exc:  # the edge of a thread that must go on
            log.write(
                "local delivery failed", severity="WARNING", function=function, error_type=type(exc).__name__
            )


def due(last: datetime, now: datetime) -> list[str]:
    """The scheduled functions whose time came after `last` and by `now`."""
    found = []
    for function, when in SCHEDULE.items():
        if isinstance(when, timedelta):
            seconds = when.total_seconds()
            passed = int(now.timestamp() // seconds) > int(last.timestamp() // seconds)
        else:
            at = now.replace(hour=when, minute=0, second=0, microsecond=0)
            passed = last < at <= now
        if passed:
            found.append(function)
    return found

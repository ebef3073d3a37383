"""Running a turn in a thread of its own while its events are sent, so that silence can be filled and a client that left be noticed."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from common import log

T = TypeVar("T")
HEARTBEAT_SECONDS = 10.0


class Background(Generic[T]):
    """The events of `make` (called with a function that says whether to stop), produced in a thread from `with` on.

    Iterating yields the events, and None after each `heartbeat` seconds of silence. `on_heartbeat` is called at most that often, also
    while events flow; when it returns False the producer is told to stop. Leaving the `with`, as happens when a server closes the
    response of a client that left, tells the producer to stop too and waits until it has stored what it has.
    """

    def __init__(
        self,
        make: Callable[[Callable[[], bool]], Iterator[T]],
        *,
        on_heartbeat: Callable[[], bool] = lambda: True,
        heartbeat: float = HEARTBEAT_SECONDS,
    ) -> None:
        self._make = make
        self._on_heartbeat = on_heartbeat
        self._heartbeat = heartbeat
        self._stop = threading.Event()
        self._done = threading.Event()
        self._events: queue.SimpleQueue[T | BaseException | None] = queue.SimpleQueue()

    def __enter__(self) -> Background[T]:
        self._producer = self._thread(self._produce, "turn")
        self._thread(self._keep, "turn-lease")
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._producer.join()

    def __iter__(self) -> Iterator[T | None]:
        while True:
            try:
                event = self._events.get(timeout=self._heartbeat)
            except queue.Empty:
                yield None
                continue
            if event is None:
                return
            if isinstance(event, BaseException):
                raise event
            yield event

    def _thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        """A running thread that logs with this request's trace."""
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(work,), name=name, daemon=True)
        thread.start()
        return thread

    def _produce(self) -> None:
        try:
            for event in self._make(self._stop.is_set):
                self._events.put(event)
        except BaseException as exc:
            self._events.put(exc)
        finally:
            self._done.set()
            self._events.put(None)

    def _keep(self) -> None:
        while not self._done.wait(self._heartbeat):
            try:
                if not self._on_heartbeat():
                    self._stop.set()
            except Exception as exc:  # the database may be away for a moment; the lease lasts several beats
                log.write_exception("lease not renewed", exc)

"""Writing a session's wrap-up, once: the session's end, the claim, the model's calls, and the one row.

A lease on the session lets one generator work at a time. No connection is held while the model is called. What a customer did meanwhile
wins: the last transaction looks at the session again before it writes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, Row

from common import db, entitlements, events, log
from common.config import Settings
from common.errors import LimitReached
from common.events import Event
from common.llm import call as llm
from common.llm.types import (
    ModelRequest,
    ProviderError,
    ProviderOverloaded,
    Stop,
    StopReason,
    TextDelta,
    Usage,
)
from common.memory import wrap_up_prompts as prompts
from common.memory.wrap_up_claims import Job, charge_for, claim, mark, reserve
from common.memory.wrap_up_draft import Draft, UnusableAnswer, read_draft, shortened
from common.sessions import EndedSession, end_if_over
from common.text import to_json


def wrap_up_session(event: Event, *, config: Settings, now: datetime, source: Engine | None = None) -> str:
    """Consume a `session-ended` event: end the session if it is over, and write its wrap-up if it is to have one.

    Returns what came of it: "made"; why there is none ("too_short", "not_remembered", "limit_…", "refused", "invalid", "empty",
    "cut_off", "deleted"); "done" for a session settled before; or why nothing was done now ("gone", "early", "running", "busy",
    "superseded", "postponed", "dead"). A provider's outage postpones the event; other failures count as attempts and are raised.
    """
    return events.attempt(event, lambda: _consume(event, config, now, source), now=now, source=source)


def _consume(event: Event, config: Settings, now: datetime, source: Engine | None) -> str:
    def end() -> EndedSession | str:
        with db.transaction("jobs", source=source) as connection:
            return end_if_over(connection, event, now=now)

    ended = db.retried(end)
    if isinstance(ended, str):
        return ended
    claimed = db.in_user_transaction(
        ended.user_id,
        lambda connection: claim(connection, event, ended, config, now),
        role="jobs",
        source=source,
    )
    if isinstance(claimed, Job):
        return _Writing(claimed, event, config, now, source).outcome()
    if claimed == "postponed":
        events.postpone_event(event, now=now, source=source)
    return claimed


class _Writing:
    """A job at work. One charge is open at any time; whichever way the job ends settles it."""

    def __init__(
        self, job: Job, event: Event, config: Settings, now: datetime, source: Engine | None
    ) -> None:
        self.job = job
        self.event = event
        self.config = config
        self.now = now
        self.source = source
        self.charge = job.charge
        self.stop = Stop("end", job.charge.model, job.charge.provider)
        self.usage = Usage()

    def outcome(self) -> str:
        """Write the wrap-up, and what came of it."""
        try:
            draft = self._draft()
        except UnusableAnswer as exc:
            return self._finish(exc.reason)
        except LimitReached as exc:
            return self._finish(f"limit_{exc.extra['limit']}")
        except ProviderOverloaded as exc:
            log.write_exception("wrap-up postponed", exc)
            self._release()
            events.postpone_event(self.event, now=self.now, source=self.source)
            return "postponed"
        except Exception:
            self._release()
            raise
        return self._finish("made", draft)

    def _draft(self) -> Draft:
        """A wrap-up within its bounds: asked for again once where it cannot be used, and once where it is too long. Raises
        UnusableAnswer, LimitReached and ProviderError."""
        transcript = self.job.transcript
        try:
            draft = self._ask(prompts.request(transcript))
        except UnusableAnswer as exc:
            draft = self._ask_again(prompts.unusable(str(exc)))
        if draft.answered_words > prompts.MAX_WORDS:
            try:
                draft = self._ask_again(prompts.too_long(draft.answered_words))
            except (UnusableAnswer, LimitReached, ProviderError) as exc:
                log.write("wrap-up shortened by rule", severity="WARNING", error_type=type(exc).__name__)
        if draft.dropped:
            log.write("wrap-up entries without support dropped", severity="WARNING", count=draft.dropped)
        return shortened(draft)

    def _ask_again(self, correction: str) -> Draft:
        request = prompts.request(self.job.transcript, correction)
        following = charge_for(request, self.job.account, self.config, self.now)
        with self._transaction() as connection:
            entitlements.settle(connection, self.job.account, self.charge, self.stop, now=self.now)
            reserve(connection, self.job.account, following, self.job.session.id, self.now, first=False)
        self.charge = following
        self.stop = Stop("end", following.model, following.provider)
        return self._ask(request)

    def _ask(self, request: ModelRequest) -> Draft:
        text, reason = self._call(request)
        return read_draft(text, reason, self.job.transcript)

    def _call(self, request: ModelRequest) -> tuple[str, StopReason]:
        choice, fallback = llm.choose(self.config, "wrap_up", self.job.account.tier)
        said = []
        try:
            for event in llm.stream(request, choice, fallback, config=self.config):
                if isinstance(event, TextDelta):
                    said.append(event.text)
                elif isinstance(event, Stop):
                    self._stopped(event)
        except ProviderError as exc:
            answered = exc.choice or choice
            self._stopped(Stop("end", answered.model, answered.provider, exc.usage, exc.cost_usd))
            raise
        return "".join(said), self.stop.reason

    def _stopped(self, stop: Stop) -> None:
        self.stop = stop
        self.usage += stop.usage
        log.emit("llm_cost_usd", cost_usd=float(stop.cost_usd), task="wrap_up", model=stop.model)
        log.emit("wrap_up_cost_usd", cost_usd=float(stop.cost_usd), model=stop.model)

    def _finish(self, outcome: str, draft: Draft | None = None) -> str:
        """Settle the last call and write the wrap-up, or why there is none, unless the customer or another generator came first."""

        def work() -> str:
            with self._transaction() as connection:
                session = self._locked(connection)
                ours = session is not None and session.wrap_up_lease == self.job.lease
                self._settle(connection, made=ours and draft is not None)
                if session is None:
                    return "gone"
                if session.wrap_up != "deleted" and not ours:
                    return "superseded"
                events.delete_event(connection, self.event, self.job.session.user_id)
                if session.wrap_up == "deleted":
                    return "deleted"
                if draft is not None:
                    self._insert(connection, draft)
                reason = None if draft else outcome
                mark(connection, self.job.session, "made" if draft else "skipped", reason=reason)
                return outcome

        written = db.retried(work)
        severity = "INFO" if written in ("made", "deleted") else "WARNING"
        log.emit(
            "wrap_ups_generated_total", severity=severity, trigger=self.job.session.trigger, outcome=written
        )
        return written

    def _release(self) -> None:
        """Settle the last call and leave the session to the next delivery."""
        with self._transaction() as connection:
            session = self._locked(connection)
            self._settle(connection, made=False)
            if session is not None and session.wrap_up_lease == self.job.lease:
                mark(connection, self.job.session, "waiting")

    def _transaction(self) -> AbstractContextManager[Connection]:
        return db.user_transaction(self.job.session.user_id, role="jobs", source=self.source)

    def _locked(self, connection: Connection) -> Row[Any] | None:
        return connection.execute(
            sa.text("""
                select wrap_up, wrap_up_lease from sessions where id = :session_id and user_id = :user_id for no key update
            """),
            {"session_id": self.job.session.id, "user_id": self.job.session.user_id},
        ).first()

    def _settle(self, connection: Connection, *, made: bool) -> None:
        also = [] if made else [entitlements.uncount_wrap_up(self.now)]
        entitlements.settle(connection, self.job.account, self.charge, self.stop, also=also, now=self.now)

    def _insert(self, connection: Connection, draft: Draft) -> None:
        """The row. Its time is the session's, whenever it is written: recall speaks of the day on which something was said."""
        connection.execute(
            sa.text("""
                insert into session_logs
                    (tenant_id, user_id, session_id, summary, decisions, open_items, new_context, next_session_note, trigger,
                     model, input_tokens, output_tokens, created_at)
                values (:tenant_id, :user_id, :session_id, :summary, cast(:decisions as jsonb), cast(:open_items as jsonb),
                        cast(:new_context as jsonb), :note, :trigger, :model, :input_tokens, :output_tokens, :created_at)
                on conflict (session_id) do nothing
            """),
            {
                "tenant_id": self.job.account.tenant_id,
                "user_id": self.job.account.user_id,
                "session_id": self.job.session.id,
                "summary": draft.summary,
                "decisions": to_json([item.as_json() for item in draft.decisions]),
                "open_items": to_json([item.as_json() for item in draft.open_items]),
                "new_context": to_json([item.as_json() for item in draft.new_context]),
                "note": draft.next_session_note,
                "trigger": self.job.session.trigger,
                "model": self.stop.model,
                "input_tokens": self.usage.input_tokens
                + self.usage.cache_read_tokens
                + self.usage.cache_write_tokens,
                "output_tokens": self.usage.output_tokens,
                "created_at": self.job.last_activity_at,
            },
        )

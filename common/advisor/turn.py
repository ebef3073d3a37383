"""A turn from raw query to stored answer: begin, route, answer through a skill or the Advisor, commit the result.

No database connection is held while a model is called or a text is embedded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common import accounts, db, entitlements, events, log
from common.accounts import Account
from common.advisor import router, skills
from common.advisor.answering import Answering, Clock, HandedOver, reserve_for
from common.advisor.answers import answer_document, stored_answer
from common.advisor.context import MAX_PROMPT_TOKENS, RequestContext, build_context, load_context
from common.advisor.events import Finished, Noted, TurnEvent
from common.auth import Identity
from common.config import Settings
from common.conversations import BegunTurn, FinishedTurn, Replay, TurnRequest, TurnStatus
from common.entitlements import Charge
from common.errors import AppError, Conflict, LimitReached, ModelUnavailable
from common.knowledge.citations import cited
from common.knowledge.embeddings import embedder
from common.knowledge.retrieval_log import log_retrieval
from common.knowledge.search import Candidate
from common.llm.types import ProviderError
from common.memory import short_term
from common.memory.honesty import undated_values
from common.memory.remembering import StagedChange, prepare_changes, write_changes
from common.text import clean_json
from common.tools.run import Executed
from common.tools.types import Remembering
from common.turns.begin import Begun, Tries, begin_turn, begun_unheard
from common.turns.finding import find
from common.turns.finish import finish_turn
from common.turns.usual import begin_as_usual, expected, keep_latest
from common.warehouse.schemas import STREAM_TOPIC

ADVISOR_TOOLS = ("query_kpi_trend", "query_site_data", "recall_prior_tool_result", "update_customer_brain")
USUAL_CALLS = 2
"""One that asks for a tool, and one that answers. Reserved together, they are settled with the answer, and need no commit in between."""
# What the prompt quotes, and the model must not write back as if the customer had said it.
QUOTED_SECTIONS = ("heartbeat", "wrap_ups", "previously_fetched", "knowledge")


class TurnTimedOut(AppError):
    """The answer took too long and was stopped. What was said until then is kept."""

    status = 503
    type = "turn-timed-out"


class ModelInterrupted(ModelUnavailable):
    """The language model broke off in the middle of the answer. What it said until then is kept."""

    type = "model-interrupted"


def begin(identity: Identity, request: TurnRequest, *, config: Settings, now: datetime) -> Begun | Replay:
    """Commit the customer's message and a reservation: for the calls of a usual turn, or where the entitlement has no room for them, for
    the first. Raises the errors of `begin_turn`, and Unavailable once the deployment has spent its daily limit."""
    tries: Tries = {}
    begun: Begun | Replay | None = None
    if account := expected(identity, request):
        charge = _charge(account, USUAL_CALLS, config, now)
        begun = begin_as_usual(identity, account, request, charge, tries, config=config, now=now)
    begun = begun or _begin_any(identity, request, tries, config, now)
    if not isinstance(begun, Replay):
        keep_latest(begun[0], request)
    return begun


def _begin_any(
    identity: Identity, request: TurnRequest, tries: Tries, config: Settings, now: datetime
) -> Begun | Replay:
    try:
        return _begin(identity, request, USUAL_CALLS, tries, config, now)
    except LimitReached as exc:
        if exc.extra.get("limit") != "cost_usd":
            raise
    # With no tries: what was tried was refused, and its count of the request taken back with it.
    return _begin(identity, request, 1, {}, config, now)


def _charge(account: Account, calls: int, config: Settings, now: datetime) -> Charge:
    return reserve_for("chat", account, config, prompt_tokens=MAX_PROMPT_TOKENS, now=now).covering(calls)


def _begin(
    identity: Identity, request: TurnRequest, calls: int, tries: Tries, config: Settings, now: datetime
) -> Begun | Replay:
    def work() -> Begun | Replay:
        with db.transaction("app") as connection:
            account, found = accounts.enter_asking(
                connection,
                identity,
                config,
                now,
                lambda user_id: find(connection, user_id, request),
                local=db.ONE_PLAN,
                requests=0 if tries else 1,  # one that was committed unheard has counted it
            )
            if earlier := begun_unheard(account, request, found, tries, now):
                return earlier
            if tries:  # none of them has happened, nor its count
                accounts.enter(connection, identity, config, now)
            entitlements.check_spend_stop(connection, config, now)
            return begin_turn(
                connection,
                account,
                request,
                found,
                _charge(account, calls, config, now),
                tries,
                now=now,
                quiet=timedelta(minutes=config.quiet_minutes),
                quiet_elsewhere=timedelta(minutes=config.quiet_minutes_elsewhere),
            )

    for _ in range(3):
        try:
            return db.retried(work)
        except sa.exc.DBAPIError as exc:
            if not db.is_duplicate(exc):
                raise  # else a faster one came in between, of the same turn or conversation: now it is seen
    raise Conflict("An answer in this conversation is still being written.")


def replay(identity: Identity, again: Replay, *, config: Settings, now: datetime) -> dict[str, Any]:
    """The stored answer of a turn that was asked for again."""
    with db.transaction("app") as connection:
        account = accounts.enter(connection, identity, config, now, requests=0)
        return stored_answer(connection, user_id=account.user_id, turn_id=again.turn_id)


def run(
    begun: BegunTurn, charge: Charge, *, config: Settings, clock: Clock, cancelled: Callable[[], bool]
) -> Iterator[TurnEvent]:
    """The events of a turn, the last one `Finished`, which comes after the commit. Ends early, and keeps what was said, when
    `cancelled` says so, when the turn's time is over or when the model breaks off."""
    turn = _Turn(begun, charge, config, clock, cancelled)
    error: AppError | None = None
    try:
        yield from turn.answer()
    except ProviderError as exc:
        error = ModelInterrupted() if turn.answering.text else ModelUnavailable()
        log.write("model failed", severity="ERROR", error_type=type(exc).__name__)
    except AppError as exc:
        error = exc
    except Exception as exc:
        log.write_exception("turn failed", exc)
        error = AppError()
    yield turn.finish(error)


class _Turn:
    """A running turn: its route, its context and its answer so far."""

    def __init__(
        self, begun: BegunTurn, charge: Charge, config: Settings, clock: Clock, cancelled: Callable[[], bool]
    ) -> None:
        self.begun = begun
        self.config = config
        self.clock = clock
        self.cancelled = cancelled
        self.route: dict[str, Any] = {"name": "advisor", "confidence": "low", "reasons": []}
        self.context: RequestContext | None = None
        self._history: list[dict[str, Any]] | None = None
        self._began = time.monotonic()
        self.answering = Answering(begun, charge, config, clock, self._must_stop, MAX_PROMPT_TOKENS)

    def answer(self) -> Iterator[TurnEvent]:
        """The events of the answer: a skill's where the router is sure, else, or when the skill hands over, the Advisor's."""
        chosen = router.route(self.begun.message, self.begun.plans)
        self.route = {"name": chosen.name, "confidence": chosen.confidence, "reasons": list(chosen.reasons)}
        if chosen.name != "advisor":
            try:
                yield from self._by_skill(skills.SKILLS[chosen.name])
                return
            except HandedOver as exc:
                reason = exc.reason
                log.emit("route_handovers_total", **{"from": chosen.name, "reason": reason})
                self.route = {
                    "name": "advisor",
                    "confidence": "low",
                    "reasons": [*chosen.reasons, f"handover:{chosen.name}:{reason}"],
                }
                self.answering.reserve_next("chat")
        yield from self._by_advisor()

    def _by_skill(self, skill: skills.Skill) -> Iterator[TurnEvent]:
        today = self.clock().astimezone(self.begun.zone).date()
        request = skills.SkillRequest(self.begun.message, today, self.begun.timezone)
        sections, messages = skills.skill_prompt(skill, request)
        answer = self.answering.rounds(
            "skill", sections, messages, skill.tools, hand_over=(skills.HAND_OVER, skills.hand_over_reason)
        )
        first = next(answer)  # comes once it is settled whose question this is
        yield Noted("route", self.route)
        yield first
        yield from answer

    def _by_advisor(self) -> Iterator[TurnEvent]:
        yield Noted("route", self.route)
        now = self.clock()
        loaded = load_context(self.begun, self.config, now)
        self._history = loaded.history
        # With the gate on, the block costs its tokens only where the query points at earlier talk.
        if self.config.recall_gate and not any(r.startswith("reference:") for r in self.route["reasons"]):
            loaded = replace(loaded, snapshots=[])
        self.context = build_context(self.begun, loaded, now)
        self.answering.remembering = self._remembering(self.context)
        for part in self.context.trace:
            if part["dropped"]:
                log.write("section over its budget", section=part["section"], dropped=part["dropped"])
        yield Noted("recall", self.context.recalled)
        names = tuple(n for n in ADVISOR_TOOLS if n != "recall_prior_tool_result" or self.config.recall_tool)
        yield from self.answering.rounds("chat", self.context.sections, self.context.messages, names)

    def _remembering(self, context: RequestContext) -> Remembering:
        return Remembering(
            allowed=self.begun.remember,
            most_memories=entitlements.LIMITS[self.begun.account.tier].memories,
            said=tuple(m.text for m in context.messages if m.role == "user"),
            recalled=tuple(s.text for s in context.sections if s.name in QUOTED_SECTIONS),
        )

    def _must_stop(self) -> bool:
        return self.cancelled() or self._out_of_time()

    def _out_of_time(self) -> bool:
        return time.monotonic() - self._began > self.config.turn_seconds

    def finish(self, error: AppError | None) -> Finished:
        """Commit all that the turn made and publish its events. What cannot be committed is not called finished."""
        if error is None and self._out_of_time():
            error = TurnTimedOut()
        said = self.answering
        status: TurnStatus = "complete"
        if self.cancelled() or error is not None:
            status = "interrupted" if said.text or said.executed or error is None else "failed"
        finished = FinishedTurn(
            status=status,
            text=said.text.strip(),
            details=self._details(),
            trace=self._trace(),
            tool_results=[_tool_result(done, i) for i, done in enumerate(said.executed)],
            error=error.type if error else None,
        )
        try:
            self._commit(finished)
        except AppError as exc:
            error, finished.status = exc, "failed"
        except Exception as exc:
            log.write_exception("answer not stored", exc)
            error, finished.status = AppError(), "failed"
        self._measure(finished)
        answer = answer_document(
            conversation_id=self.begun.conversation_id,
            session_id=self.begun.session_id,
            turn_id=self.begun.turn_id,
            message_id=self.begun.assistant_message_id,
            status=finished.status,
            text=finished.text,
            details=finished.details,
            tool_results=finished.tool_results,
            error=error.type if error else None,
        )
        return Finished(answer, error)

    def _commit(self, finished: FinishedTurn) -> None:
        now = self.clock()
        changes = self._prepare_changes()

        def write(connection: Connection) -> tuple[list[events.Event], list[dict[str, Any]]]:
            if not (changes or self._searched(finished)):
                db.commit_with_next(connection)
            written = finish_turn(
                connection,
                self.begun,
                finished,
                settled=self.answering.unsettled(),
                now=now,
                quiet=timedelta(minutes=self.config.quiet_minutes),
            )
            if written is None:  # so is what is written beside
                return [], []
            return written, self._write_beside(connection, finished, changes, now)

        made, logged = db.in_user_transaction(self.begun.account.user_id, write, local=db.ONE_PLAN)
        short_term.keep_turn(self.begun, self._history, finished.text, now)
        publisher = events.publisher(self.config)
        events.publish_now(made, publisher)
        if self.config.retrieval_sink == "both":
            events.stream_now(STREAM_TOPIC, logged, publisher)

    def _prepare_changes(self) -> list[StagedChange]:
        """The staged changes of the brain with their vectors, which are made before a connection is taken."""
        if not (staged := self.answering.staged()):
            return []
        model = embedder(self.config)
        return prepare_changes(staged, lambda texts: model.embed(texts, kind="document"), model.name)

    def _write_beside(
        self, connection: Connection, finished: FinishedTurn, changes: list[StagedChange], now: datetime
    ) -> list[dict[str, Any]]:
        """What is written with the answer, in its transaction. None of it can cost the answer. Returns the rows of the retrieval log."""
        if changes:
            finished.details["not_saved"] = write_changes(
                connection, self.begun.account, self.begun.assistant_message_id, changes, now
            )
        return log_retrieval(
            connection,
            user_id=self.begun.account.user_id,
            message_id=self.begun.assistant_message_id,
            trace=self._searched(finished),
            cited=frozenset(s.entry_id for n, s in self._cited()),
            created_at=now,
        )

    def _searched(self, finished: FinishedTurn) -> list[Candidate]:
        """The candidates of the knowledge base that are to be logged."""
        return [] if self.context is None or finished.status == "failed" else self.context.candidates

    def _cited(self) -> list[tuple[int, Any]]:
        """The sources that the answer refers to, by their number."""
        surfaced = self.context.sources if self.context else []
        return [(n, surfaced[n - 1]) for n in sorted(cited(self.answering.text, len(surfaced)))]

    def _details(self) -> dict[str, Any]:
        return {
            "route": self.route,
            "sources": [
                {"n": n, "entry_id": str(s.entry_id), "title": s.title, "url": s.url}
                for n, s in self._cited()
            ],
            "recalled": self.context.recalled if self.context else {"snapshots": [], "wrap_ups": []},
            "usage": vars(self.answering.usage),
            "model": self.answering.stop.model,
            "provider": self.answering.stop.provider,
        }

    def _trace(self) -> dict[str, Any]:
        tools = [
            {"name": d.call.name, "input": clean_json(d.call.input), "is_error": d.is_error}
            for d in self.answering.executed
        ]
        sections = self.context.trace if self.context else []
        return {"route": self.route, "sections": sections, "calls": self.answering.calls, "tools": tools}

    def _measure(self, finished: FinishedTurn) -> None:
        name, said = self.route["name"], self.answering
        log.emit("turns_total", route=name, outcome=finished.status)
        log.emit("turn_latency_ms", ms=round(1000 * (time.monotonic() - self._began)), route=name)
        if said.first_token_at is not None:
            log.emit(
                "time_to_first_token_ms", ms=round(1000 * (said.first_token_at - self._began)), route=name
            )
        if self.context is None:
            return
        if tokens := self.context.tokens("previously_fetched"):
            log.emit("tool_results_injection_tokens", tokens=tokens)
        fresh = frozenset(done.call.name for done in said.executed)
        if count := undated_values(said.text, self.context.snapshots, fresh, self.begun.timezone):
            log.emit("undated_recall_total", severity="WARNING", count=count)


def _tool_result(done: Executed, position: int) -> dict[str, Any]:
    return {
        "tool_use_id": done.call.id,
        "tool_name": done.call.name,
        "tool_input": clean_json(done.call.input),
        "tool_output": done.output,
        "signals": done.signals,
        "arguments_hash": done.arguments_hash,
        "is_error": done.is_error,
        "position": position,
        "observed_at": done.observed_at,
        "created_at": done.created_at,
    }

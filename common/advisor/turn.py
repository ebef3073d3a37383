"""A turn from raw query to stored answer: begin, route, build the context, call the model and its tools, commit the result.

No database connection is held while a model is called.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from common import accounts, conversations, db, entitlements, events, log
from common.advisor import prompts
from common.advisor.answers import answer_document, stored_answer
from common.advisor.context import MAX_PROMPT_TOKENS, RequestContext, build_context, load_context
from common.auth import Identity
from common.config import Settings
from common.conversations import BegunTurn, FinishedTurn, Replay, TurnRequest, TurnStatus
from common.entitlements import Charge
from common.errors import AppError, ModelUnavailable
from common.knowledge.embeddings import embedder
from common.llm import call as llm
from common.llm.types import (
    Message,
    ModelChoice,
    ModelRequest,
    ProviderError,
    Section,
    Stop,
    Task,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from common.memory import short_term
from common.memory.honesty import undated_values
from common.memory.remembering import StagedChange, prepare_changes, write_changes
from common.memory.snapshots import read_recall
from common.text import clean_json, clean_text
from common.tools.registry import spec
from common.tools.run import Executed, run_tool
from common.tools.types import Remembering

MAX_TOOL_ROUNDS = 6
MAX_OUTPUT_TOKENS = 2048
ADVISOR_TOOLS = ("query_kpi_trend", "query_site_data", "recall_prior_tool_result", "update_customer_brain")
# What the prompt quotes and the model must not write back as if the customer had said it.
QUOTED_SECTIONS = ("heartbeat", "wrap_ups", "previously_fetched", "knowledge")
ROUTE_ADVISOR: dict[str, Any] = {"name": "advisor", "confidence": "low", "reasons": []}

Clock = Callable[[], datetime]


@dataclass(frozen=True)
class StepStarted:
    """A call of the model begins."""


@dataclass(frozen=True)
class StepFinished:
    """A call of the model, and the tools it asked for, are done."""


@dataclass(frozen=True)
class Noted:
    """Something to show beside the answer: `name` is route or recall."""

    name: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Finished:
    """The stored answer in its JSON form; `error` says how a turn that did not complete ended."""

    answer: dict[str, Any]
    error: AppError | None = None


TurnEvent = StepStarted | StepFinished | Noted | TextDelta | ToolCall | Executed | Finished


class TurnTimedOut(AppError):
    """The answer took too long and was stopped. What was said until then is kept."""

    status = 503
    type = "turn-timed-out"


class ModelInterrupted(ModelUnavailable):
    """The language model broke off in the middle of the answer. What it said until then is kept."""

    type = "model-interrupted"


def begin(
    identity: Identity, request: TurnRequest, *, config: Settings, now: datetime
) -> tuple[BegunTurn, Charge] | Replay:
    """Commit the customer's message and the reservation of the first call. Raises the errors of `conversations.begin_turn`, and
    Unavailable once the deployment has spent its daily limit."""

    def work() -> tuple[BegunTurn, Charge] | Replay:
        with db.transaction("app") as connection:
            account = accounts.enter(connection, identity, config, now)
            entitlements.check_spend_stop(connection, config, now)
            charge = _reserve_for("chat", account, config, now)
            begun = conversations.begin_turn(
                connection,
                account,
                request,
                charge,
                now=now,
                quiet=timedelta(minutes=config.quiet_minutes),
                quiet_elsewhere=timedelta(minutes=config.quiet_minutes_elsewhere),
            )
            return begun if isinstance(begun, Replay) else (begun, charge)

    return db.retried(work)


def replay(identity: Identity, again: Replay, *, config: Settings, now: datetime) -> dict[str, Any]:
    """The stored answer of a turn that was asked for again."""
    with db.transaction("app") as connection:
        account = accounts.enter(connection, identity, config, now)
        return stored_answer(connection, user_id=account.user_id, turn_id=again.turn_id)


def run(
    begun: BegunTurn, charge: Charge, *, config: Settings, clock: Clock, cancelled: Callable[[], bool]
) -> Iterator[TurnEvent]:
    """The events of a turn, the last one `Finished`, which comes after the commit. Ends early, and keeps what was said, when
    `cancelled` says so, when the turn's time is over or when the model breaks off."""
    turn = _Turn(begun, charge, config, clock, cancelled)
    error: AppError | None = None
    try:
        yield Noted("route", turn.route)
        yield from turn.answer()
    except ProviderError as exc:
        turn.stopped(_stop_of(exc, charge))
        error = ModelInterrupted() if turn.text else ModelUnavailable()
        log.write("model failed", severity="ERROR", error_type=type(exc).__name__)
    except AppError as exc:
        error = exc
    except Exception as exc:
        log.write_exception("turn failed", exc)
        error = AppError()
    yield turn.finish(error)


def _stop_of(error: ProviderError, charge: Charge) -> Stop:
    return Stop("end", charge.model, charge.provider, error.usage, error.cost_usd)


def _reserve_for(task: Task, account: accounts.Account, config: Settings, now: datetime) -> Charge:
    choice, fallback = llm.choose(config, task, account.tier)
    worst = llm.ceiling_usd(
        choice, fallback, prompt_tokens=MAX_PROMPT_TOKENS, output_tokens=MAX_OUTPUT_TOKENS
    )
    return Charge(task, choice.provider, choice.model, worst, now)


class _Turn:
    """A running turn: what it has said, fetched and spent so far."""

    def __init__(
        self, begun: BegunTurn, charge: Charge, config: Settings, clock: Clock, cancelled: Callable[[], bool]
    ) -> None:
        self.begun = begun
        self.config = config
        self.clock = clock
        self.cancelled = cancelled
        self.route = ROUTE_ADVISOR
        self.text = ""
        self.executed: list[Executed] = []
        self.context: RequestContext | None = None
        self.loaded: dict[str, Any] = {}
        self.calls: list[dict[str, Any]] = []
        self.usage = Usage()
        self.model = ModelChoice(charge.provider, charge.model)
        self._open: tuple[Charge, Stop] = (charge, Stop("end", charge.model, charge.provider))
        self._began = time.monotonic()
        self._first_token: float | None = None

    # -- answering ------------------------------------------------------------------------------------------------------

    def answer(self) -> Iterator[TurnEvent]:
        """The Advisor's events: its context first, then rounds of the model and its tools."""
        with db.user_transaction(self.begun.account.user_id) as connection:
            self.loaded = load_context(connection, self.begun, self.clock())
        self.context = build_context(self.begun, self.loaded, self.clock())
        recalled = {
            "snapshots": self.context.recalled_snapshots,
            "wrap_ups": self.context.recalled_wrap_ups,
        }
        yield Noted("recall", recalled)
        names = [n for n in ADVISOR_TOOLS if n != "recall_prior_tool_result" or self.config.recall_tool]
        yield from self._rounds("chat", self.context.sections, self.context.messages, names)

    def _rounds(
        self, task: Task, system: tuple[Section, ...], messages: tuple[Message, ...], names: list[str]
    ) -> Iterator[TurnEvent]:
        choice, fallback = llm.choose(self.config, task, self.begun.account.tier)
        for number in range(MAX_TOOL_ROUNDS + 1):
            tools = tuple(spec(name) for name in names) if number < MAX_TOOL_ROUNDS else ()
            request = ModelRequest(task, system, messages, tools, None, MAX_OUTPUT_TOKENS)
            yield StepStarted()
            calls: list[ToolCall] = []
            before = len(self.text)
            for event in llm.stream(request, choice, fallback, config=self.config, cancelled=self._must_stop):
                if isinstance(event, TextDelta):
                    yield from self._say(event.text, first_of_step=len(self.text) == before)
                elif isinstance(event, ToolCall):
                    calls.append(event)
                else:
                    self.stopped(event)
            if self._must_stop():
                return
            if not calls:
                yield from self._closing_words(tools)
                yield StepFinished()
                return
            said = Message("assistant", self.text[before:].strip(), tuple(calls))
            results = yield from self._run_tools(calls, frozenset(names))
            yield StepFinished()
            messages = (*messages, said, Message("user", results=tuple(results)))
            self._reserve_next(task)

    def _say(self, text: str, *, first_of_step: bool) -> Iterator[TurnEvent]:
        text = clean_text(text)
        if first_of_step and self.text:
            text = "\n\n" + text
        if self._first_token is None:
            self._first_token = time.monotonic()
        self.text += text
        yield TextDelta(text)

    def _closing_words(self, tools: tuple[ToolSpec, ...]) -> Iterator[TurnEvent]:
        """What must be added for honesty when the model did not end by itself."""
        reason = self._open[1].reason
        if reason == "refusal" and not self.text:
            yield from self._say(prompts.REFUSED, first_of_step=False)
        elif reason in ("max_tokens", "context_full"):
            yield from self._say(prompts.CUT_SHORT, first_of_step=False)
        elif not tools:
            yield from self._say(prompts.OUT_OF_ROUNDS, first_of_step=False)

    def _run_tools(
        self, calls: list[ToolCall], allowed: frozenset[str]
    ) -> Generator[TurnEvent, None, list[ToolResult]]:
        results = []
        for call in calls:
            yield call
            done = run_tool(
                call,
                allowed=allowed,
                open_transaction=lambda: db.user_transaction(self.begun.account.user_id),
                user_id=self.begun.account.user_id,
                site=self.begun.site,
                conversation_id=self.begun.conversation_id,
                now=self.clock(),
                remembering=self._remembering(),
            )
            self.executed.append(done)
            yield done
            results.append(ToolResult(call.id, done.for_model, done.is_error))
        return results

    def _remembering(self) -> Remembering:
        quoted = self.context.sections if self.context else ()
        return Remembering(
            allowed=self.begun.remember,
            most_memories=entitlements.LIMITS[self.begun.account.tier].memories,
            recalled=tuple(section.text for section in quoted if section.name in QUOTED_SECTIONS),
            staged=self._staged(),
        )

    def _staged(self) -> tuple[dict[str, Any], ...]:
        return tuple(change for done in self.executed for change in done.staged)

    def stopped(self, stop: Stop) -> None:
        """A call of the model ended: note what it used."""
        self.usage += stop.usage
        self.model = ModelChoice(stop.provider, stop.model)
        self._open = (self._open[0], stop)
        self.calls.append(
            {
                "model": stop.model,
                "provider": stop.provider,
                "reason": stop.reason,
                "usage": vars(stop.usage),
                "cost_usd": str(stop.cost_usd),
            }
        )
        log.emit("llm_cost_usd", cost_usd=float(stop.cost_usd), task=self._open[0].kind, model=stop.model)

    def _reserve_next(self, task: Task) -> None:
        now = self.clock()
        following = _reserve_for(task, self.begun.account, self.config, now)
        with db.user_transaction(self.begun.account.user_id) as connection:
            entitlements.settle_and_reserve(
                connection,
                self.begun.account,
                settled=self._open,
                next_charge=following,
                turn_id=self.begun.turn_id,
                session_id=self.begun.session_id,
                now=now,
            )
        self._open = (following, Stop("end", following.model, following.provider))

    def _must_stop(self) -> bool:
        return self.cancelled() or self._out_of_time()

    def _out_of_time(self) -> bool:
        return time.monotonic() - self._began > self.config.turn_seconds

    # -- finishing ------------------------------------------------------------------------------------------------------

    def finish(self, error: AppError | None) -> Finished:
        """Commit all that the turn made and publish its events. What cannot be committed is not called finished."""
        if error is None and self._out_of_time():
            error = TurnTimedOut()
        status: TurnStatus = "complete"
        if self.cancelled() or error is not None:
            status = "interrupted" if self.text or self.executed or error is None else "failed"
        finished = FinishedTurn(
            status=status,
            text=self.text.strip(),
            details=self._details(),
            trace=self._trace(),
            tool_results=[_tool_result(done, i) for i, done in enumerate(self.executed)],
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

        def work() -> list[events.Event]:
            with db.user_transaction(self.begun.account.user_id) as connection:
                written = conversations.finish_turn(
                    connection,
                    self.begun,
                    finished,
                    settled=self._open,
                    now=now,
                    quiet=timedelta(minutes=self.config.quiet_minutes),
                )
                self._write_beside(connection, finished, changes, now)
                return written

        made = db.retried(work)
        short_term.keep_turn(self.begun, self.loaded.get("history"), finished.text, now)
        events.publish_now(made, events.publisher(self.config))

    def _prepare_changes(self) -> list[StagedChange]:
        """The staged changes of the brain with their vectors, which are made before a connection is taken."""
        if not self.begun.remember or not (staged := self._staged()):
            return []
        model = embedder(self.config)
        return prepare_changes(staged, lambda texts: model.embed(texts, kind="document"), model.name)

    def _write_beside(
        self, connection: Connection, finished: FinishedTurn, changes: list[StagedChange], now: datetime
    ) -> None:
        """What is written with the answer, in its transaction: staged changes of the brain, and the retrieval log."""
        message_id = self.begun.assistant_message_id
        finished.details["not_saved"] = write_changes(
            connection, self.begun.account, message_id, changes, now
        )

    def _details(self) -> dict[str, Any]:
        recalled = (
            {"snapshots": [], "wrap_ups": []}
            if self.context is None
            else {
                "snapshots": self.context.recalled_snapshots,
                "wrap_ups": self.context.recalled_wrap_ups,
            }
        )
        return {
            "route": self.route,
            "sources": [],
            "recalled": recalled,
            "usage": vars(self.usage),
            "model": self.model.model,
            "provider": self.model.provider,
        }

    def _trace(self) -> dict[str, Any]:
        return {
            "route": self.route,
            "sections": self.context.trace if self.context else [],
            "calls": self.calls,
            "tools": [
                {"name": d.call.name, "input": clean_json(d.call.input), "is_error": d.is_error}
                for d in self.executed
            ],
        }

    def _measure(self, finished: FinishedTurn) -> None:
        name = self.route["name"]
        log.emit("turns_total", route=name, outcome=finished.status)
        log.emit("turn_latency_ms", ms=round(1000 * (time.monotonic() - self._began)), route=name)
        if self._first_token is not None:
            log.emit("time_to_first_token_ms", ms=round(1000 * (self._first_token - self._began)), route=name)
        if self.context is None:
            return
        for section in self.context.trace:
            if section["section"] == "previously_fetched":
                log.emit("tool_results_injection_tokens", tokens=section["tokens"])
        fresh = frozenset(d.call.name for d in self.executed)
        recalled = read_recall(self.loaded["recall"])
        if count := undated_values(self.text, recalled, fresh, self.begun.timezone):
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

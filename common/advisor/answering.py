"""The rounds of a turn: the model is called, asks for tools, is called again with their results, until it has answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from common import db, entitlements, log
from common.accounts import Account
from common.advisor import prompts
from common.advisor.events import StepFinished, StepStarted, TurnEvent
from common.config import Settings
from common.conversations import BegunTurn
from common.entitlements import Charge, Ended
from common.llm import call as llm
from common.llm.types import (
    Message,
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
from common.text import clean_text
from common.tools.registry import spec
from common.tools.run import NOTHING_TO_REMEMBER, Executed, run_tool
from common.tools.types import Remembering

MAX_TOOL_ROUNDS = 6
MAX_OUTPUT_TOKENS = 2048

Clock = Callable[[], datetime]
Step = Generator[TurnEvent, None, list[ToolCall]]


class HandedOver(Exception):
    """A skill gave the question to the Advisor. Nothing of its try was sent."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def reserve_for(
    task: Task, account: Account, config: Settings, *, prompt_tokens: int, now: datetime
) -> Charge:
    """The reservation of a call of which only the bounds are known yet."""
    choice, fallback = llm.choose(config, task, account.tier)
    worst = llm.ceiling_usd(choice, fallback, prompt_tokens=prompt_tokens, output_tokens=MAX_OUTPUT_TOKENS)
    return Charge(task, choice.provider, choice.model, worst, now)


class Answering:
    """A turn that is being answered: what it has said, fetched and spent so far. One reservation is open at any time; `charge` is
    of the call that runs or ran last. `must_stop` is asked wherever the turn can end cleanly."""

    def __init__(
        self,
        begun: BegunTurn,
        charge: Charge,
        config: Settings,
        clock: Clock,
        must_stop: Callable[[], bool],
        prompt_tokens: int,
    ) -> None:
        self._begun = begun
        self._config = config
        self._clock = clock
        self._must_stop = must_stop
        self._prompt_tokens = prompt_tokens
        self.text = ""
        self.executed: list[Executed] = []
        self.calls: list[dict[str, Any]] = []
        self.usage = Usage()
        self.charge = charge
        self._ended: list[Ended] = []
        self.stop = Stop("end", charge.model, charge.provider)
        self.first_token_at: float | None = None
        self.remembering = NOTHING_TO_REMEMBER

    def rounds(
        self,
        task: Task,
        system: tuple[Section, ...],
        messages: tuple[Message, ...],
        names: tuple[str, ...],
        *,
        hand_over: tuple[ToolSpec, Callable[[list[ToolCall]], str]] | None = None,
    ) -> Iterator[TurnEvent]:
        """The events of an answer. With `hand_over` (a tool, and what tells the reason for it from the first calls) the first round is
        held back until it is settled whose question this is; raises HandedOver when it is another's. Raises ProviderError."""
        self.charge = replace(self.charge, kind=task)
        choice, fallback = llm.choose(self._config, task, self._begun.account.tier)
        for number in range(MAX_TOOL_ROUNDS + 1):
            tools = tuple(spec(name) for name in names) if number < MAX_TOOL_ROUNDS else ()
            if hand_over and number == 0:
                tools = (*tools, hand_over[0])
            before = len(self.text)
            request = ModelRequest(task, system, messages, tools, None, MAX_OUTPUT_TOKENS)
            step = self._step(
                llm.stream(request, choice, fallback, config=self._config, cancelled=self._must_stop)
            )
            if hand_over and number == 0:
                calls = yield from self._settled(step, hand_over[1])
            else:
                calls = yield from step
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
            self.reserve_next(task)

    def _step(self, events: Iterator[Any]) -> Step:
        """One call of the model."""
        yield StepStarted()
        calls: list[ToolCall] = []
        started = bool(self.text)
        try:
            for event in events:
                if isinstance(event, TextDelta):
                    yield self._say(event.text, new_paragraph=started)
                    started = False
                elif isinstance(event, ToolCall):
                    calls.append(event)
                else:
                    self._stopped(event)
        except ProviderError as exc:
            model = exc.choice.model if exc.choice else self.charge.model
            self._stopped(Stop("end", model, self.charge.provider, exc.usage, exc.cost_usd))
            raise
        return calls

    def _settled(self, step: Step, reason_of: Callable[[list[ToolCall]], str]) -> Step:
        held = []
        while True:
            try:
                held.append(next(step))
            except StopIteration as done:
                calls: list[ToolCall] = done.value
                break
        if reason := reason_of(calls):
            self.text, self.first_token_at = "", None
            raise HandedOver(reason)
        yield from held
        return calls

    def _say(self, text: str, *, new_paragraph: bool = False) -> TextDelta:
        text = ("\n\n" if new_paragraph else "") + clean_text(text)
        if self.first_token_at is None:
            self.first_token_at = time.monotonic()
        self.text += text
        return TextDelta(text)

    def _closing_words(self, tools: tuple[ToolSpec, ...]) -> Iterator[TurnEvent]:
        """What must be added for honesty when the model did not end by itself."""
        if self.stop.reason == "refusal" and not self.text:
            yield self._say(prompts.REFUSED)
        elif self.stop.reason in ("max_tokens", "context_full"):
            yield self._say(prompts.CUT_SHORT)
        elif not tools:
            yield self._say(prompts.OUT_OF_ROUNDS)

    def _run_tools(
        self, calls: list[ToolCall], allowed: frozenset[str]
    ) -> Generator[TurnEvent, None, list[ToolResult]]:
        results = []
        for call in calls:
            yield call
            done = run_tool(
                call,
                allowed=allowed,
                open_transaction=lambda limits: db.user_transaction(
                    self._begun.account.user_id, local=limits
                ),
                user_id=self._begun.account.user_id,
                site=self._begun.site,
                conversation_id=self._begun.conversation_id,
                now=self._clock(),
                remembering=self._remembering(),
            )
            self.executed.append(done)
            yield done
            results.append(ToolResult(call.id, done.for_model, done.is_error))
        return results

    def _remembering(self) -> Remembering:
        """What may be kept by now: what a tool of this turn told is no more the customer's than what the prompt quotes."""
        told = (done.for_model for done in self.executed if not done.is_error)
        recalled = (*self.remembering.recalled, *told)
        return replace(self.remembering, staged=self.staged(), recalled=recalled)

    def staged(self) -> tuple[dict[str, Any], ...]:
        """The changes that the tools staged, in order."""
        return tuple(change for done in self.executed for change in done.staged)

    def _stopped(self, stop: Stop) -> None:
        self.usage += stop.usage
        self.stop = stop
        spent = {"usage": vars(stop.usage), "cost_usd": str(stop.cost_usd)}
        self.calls.append(
            {
                "task": self.charge.kind,
                "model": stop.model,
                "provider": stop.provider,
                "reason": stop.reason,
                **spent,
            }
        )
        log.emit("llm_cost_usd", cost_usd=float(stop.cost_usd), task=self.charge.kind, model=stop.model)

    def unsettled(self) -> list[Ended]:
        """The calls of the open reservation."""
        return [*self._ended, (self.charge, self.stop)]

    def reserve_next(self, task: Task) -> None:
        """Go on to the next call: where the reservation does not cover it, settle those that it did and reserve this one. Raises
        LimitReached."""
        now = self._clock()
        account = self._begun.account
        following = reserve_for(task, account, self._config, prompt_tokens=self._prompt_tokens, now=now)
        ended = self.unsettled()
        reservation, _ = ended[0]
        if len(ended) < reservation.calls:
            self._ended = ended
            self._call(following.covering(0))
            return
        write = partial(
            entitlements.settle_and_reserve,
            account=account,
            settled=ended,
            next_charge=following,
            turn_id=self._begun.turn_id,
            now=now,
        )
        try:
            db.in_user_transaction(account.user_id, write)
        except sa.exc.DBAPIError as exc:
            if not db.is_duplicate(exc):  # it is there: the commit's acknowledgement was lost, not the commit
                raise
        self._ended = []
        self._call(following)

    def _call(self, charge: Charge) -> None:
        self.charge = charge
        self.stop = Stop("end", charge.model, charge.provider)

"""Running one tool call: checked arguments, a time limit, a size limit, and a result whatever happens. A tool never ends a turn."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection

from common import db, log
from common.llm.types import ToolCall
from common.once import once
from common.text import canonical_hash, clean_json, one_line, to_json
from common.tools.registry import tools
from common.tools.types import Remembering, Site, Tool, ToolContext, ToolMistake, ToolOutput

MODEL_BYTES = 32 * 1024
STORED_BYTES = 256 * 1024
MAX_AT_ONCE = 200  # more than an instance has requests; one that hangs keeps its thread
NOTHING_TO_REMEMBER = Remembering(allowed=False)

OpenTransaction = Callable[[Mapping[str, str]], AbstractContextManager[Connection]]


@dataclass(frozen=True)
class Executed:
    """A call that was carried out, or tried. `for_model` is the JSON text that the model gets; `output` is what is stored."""

    call: ToolCall
    for_model: str
    output: dict[str, Any]
    signals: dict[str, Any]
    arguments_hash: str
    is_error: bool
    observed_at: datetime | None
    created_at: datetime
    staged: tuple[dict[str, Any], ...] = ()


def run_tool(
    call: ToolCall,
    *,
    allowed: frozenset[str],
    open_transaction: OpenTransaction,
    user_id: uuid.UUID,
    site: Site | None,
    conversation_id: uuid.UUID,
    now: datetime,
    remembering: Remembering = NOTHING_TO_REMEMBER,
) -> Executed:
    """The result of `call`. Wrong arguments, an exception and a passed time limit become a result with `is_error` that tells the
    model what to do; `open_transaction` gives the tool a connection scoped to the user, with settings of the server's."""
    tool = tools().get(call.name) if call.name in allowed else None
    if tool is None:
        names = ", ".join(sorted(allowed))
        return _error(
            call, now, f"There is no tool {one_line(call.name, 60)!r} here. The tools are: {names}."
        )
    try:
        arguments = tool.arguments.model_validate(call.input)
    except ValidationError as exc:
        wrong = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}"
            for e in exc.errors(include_url=False, include_input=False)
        )
        return _error(call, now, f"Wrong arguments. {one_line(wrong, 600)}. Mend them and call again.")
    # Canonical: defaults filled in, so that a call that spells them out is the same call.
    hashed = canonical_hash(arguments.model_dump(mode="json"))
    staged: list[dict[str, Any]] = []
    context = functools.partial(
        ToolContext,
        user_id=user_id,
        site=site,
        conversation_id=conversation_id,
        now=now,
        remembering=remembering,
        staged=staged,
    )
    outcome = _within_time(tool, arguments, context, open_transaction)
    if isinstance(outcome, str):
        return _error(call, now, outcome, hashed)
    whole = to_json(outcome.data)
    small = len(whole.encode()) <= MODEL_BYTES
    return Executed(
        call=call,
        for_model=whole if small else to_json(cut_rows(outcome.data, tool.row_lists, MODEL_BYTES)),
        output=outcome.data if small else cut_rows(outcome.data, tool.row_lists, STORED_BYTES),
        signals=outcome.signals,
        arguments_hash=hashed,
        is_error=False,
        observed_at=outcome.as_of,
        created_at=now,
        staged=tuple(staged),
    )


@dataclass(frozen=True)
class _Result:
    """A tool's clean output and its signals."""

    data: dict[str, Any]
    signals: dict[str, Any]
    as_of: datetime | None


class _Running:
    """What a tool's thread holds that must be taken from it when time is up: its connection."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.late = False


@once
def _threads() -> ThreadPoolExecutor:
    """The threads in which tools run. A new one for each call would take as long as a quick tool's work. They are waited for at the end of
    the process: one that hangs holds it up until it is killed."""
    return ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="tool")


def _within_time(
    tool: Tool, arguments: Any, context: Callable[..., ToolContext], open_transaction: OpenTransaction
) -> _Result | str:
    """The tool's output, or the error for the model. A tool that outlives its time, which begins with the wait for a thread, loses its
    connection, so that the pool does not run dry, and its result is dropped."""
    running = _Running()
    trace = log.current_trace()
    # Tools read; what they want written is staged. The server ends a statement when the tool's time is up.
    limits = {
        "transaction_read_only": "on",
        "statement_timeout": str(int(tool.timeout_seconds * 1000)),
    }

    def read() -> ToolOutput:
        with open_transaction(limits) as connection:
            running.connection = connection
            # Without its connection it looks like one whose database went away, which is tried again.
            if running.late:
                raise ToolMistake("The tool's time is up.")
            scoped = context(connection=connection)
            scoped.staged.clear()  # what a try staged that lost its connection
            return tool.handler(scoped, arguments)

    def work() -> _Result | str:
        log.set_trace(trace)
        try:
            output = db.retried(read)
            data = clean_json(output.data)
            signals = clean_json(tool.signals(arguments.model_dump(mode="json"), data))
            return _Result(data, signals, output.as_of)
        except ToolMistake as exc:
            return str(exc)
        except Exception as exc:  # a tool that fails never ends the turn
            log.write_exception("tool failed", exc, tool_name=tool.name)
            return "The tool failed. Tell the user that this cannot be looked up right now."

    outcome = _threads().submit(work)
    try:
        return outcome.result(tool.timeout_seconds)
    except TimeoutError:
        running.late = True
        outcome.cancel()  # where it has not begun
        log.write("tool took too long", severity="WARNING", tool_name=tool.name)
        if running.connection is not None:
            with contextlib.suppress(Exception):
                running.connection.invalidate()
        return f"The tool did not answer within {tool.timeout_seconds:g} seconds. Ask for less, or do without it."


def _error(call: ToolCall, now: datetime, message: str, hashed: str = "") -> Executed:
    output = {"error": message}
    hashed = hashed or canonical_hash(call.input)
    return Executed(call, to_json(output), output, {}, hashed, True, None, now)


def cut_rows(data: dict[str, Any], row_lists: tuple[str, ...], limit: int) -> dict[str, Any]:
    """`data` if its JSON is at most `limit` bytes; otherwise a copy cut at a row, marked `truncated` with the whole's size and hash
    and a note that a reader sees. What is too large without any rows is replaced by the note alone."""
    whole = to_json(data).encode()
    if len(whole) <= limit:
        return data
    mark = {"truncated": True, "size_bytes": len(whole), "sha256": hashlib.sha256(whole).hexdigest()}
    for key in row_lists:
        rows = data.get(key)
        if not isinstance(rows, list):
            continue
        rest = {
            **{k: v for k, v in data.items() if k != key},
            **mark,
            "note": _note(len(rows), len(rows), key),
        }
        room = limit - len(to_json(rest).encode()) - len(key) - 64
        kept: list[Any] = []
        for row in rows:
            room -= len(to_json(row).encode()) + 2
            if room < 0:
                break
            kept.append(row)
        if kept or room > 0:
            return {**rest, key: kept, "note": _note(len(kept), len(rows), key)}
    return {
        **mark,
        "note": "The result was too large to keep. Ask for less, for instance with a filter or a limit.",
    }


def _note(kept: int, total: int, key: str) -> str:
    return f"Cut for size: the first {kept} of {total} {key} are shown."

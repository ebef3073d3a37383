"""One step of the offline model: from a request to the text it says or the tools it calls."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from common.llm.offline import cues, mistakes, recall
from common.llm.offline.context import Context, read_context
from common.llm.offline.question import Part, read_question
from common.llm.offline.results import data_of, kpi_sentences, list_sentences
from common.llm.types import Message, ModelRequest, ToolCall, ToolResult, ToolSpec
from common.text import canonical_hash, one_line

HAND_OVER = "hand_over"
REMEMBER_TOOL = "update_customer_brain"
GREETING = "Hello! Ask me about your members, plans, revenue, or what we discussed before."
THANKED = "You are welcome."
HELP = (
    "I am the offline stand-in for a language model. I look up members, plans, cancellations, transactions and metrics such as MRR or"
    " churn, quote the knowledge base, and tell what we discussed before, each with its date."
)
FORGET = "I delete nothing from here: what I remember is listed in the console, where you can correct and delete it."
UNDERSTOOD = 'Understood. It stays in this conversation; say "remember that …" to have it kept.'


@dataclass(frozen=True)
class Step:
    """What comes of one request: calls, or else text."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class Turn:
    """The turn that a request is in: its question, and the calls already made with their results."""

    question: str
    earlier: tuple[str, ...]
    done: tuple[tuple[ToolCall, ToolResult], ...]


def step(request: ModelRequest) -> Step:
    """The next step of a chat or skill turn: first every call that the question needs, at once; then those that failed and can be
    mended; then the answer from the results."""
    turn = read_turn(request.messages)
    context = read_context(request)
    tools = {tool.name: tool for tool in request.tools}
    parts = read_question(turn.question, turn.earlier, context.today)
    if not turn.done:
        wanted = [(part, call) for part in parts if (call := _call_for(part, tools, context))]
        if not wanted and HAND_OVER in tools:
            return Step(calls=_identified(request, [(HAND_OVER, {"reason": _reason(parts)})]))
        if wanted:
            return Step(calls=_identified(request, [call for _, call in wanted]))
    if again := _mended_calls(turn):
        return Step(calls=_identified(request, again))
    only_tools = request.task == "skill"
    said = [_say(part, turn, tools, context, only_tools) for part in parts]
    return Step(text="\n\n".join(dict.fromkeys(s for s in said if s)))


def read_turn(messages: tuple[Message, ...]) -> Turn:
    """The last question of the user, the ones before it, and the calls made since."""
    asked = [i for i, m in enumerate(messages) if m.role == "user" and m.text and not m.results]
    if not asked:
        return Turn("", (), ())
    since = messages[asked[-1] + 1 :]
    results = {result.call_id: result for message in since for result in message.results}
    done = [(call, results[call.id]) for message in since for call in message.calls if call.id in results]
    return Turn(messages[asked[-1]].text, tuple(messages[i].text for i in asked[:-1]), tuple(done))


def _call_for(part: Part, tools: dict[str, ToolSpec], context: Context) -> tuple[str, dict[str, Any]] | None:
    """The tool call that this part needs, if the tool is offered and takes the part's metric or target."""
    if part.kind == "kpi" and _takes(tools.get("query_kpi_trend"), "metric", part.name):
        return "query_kpi_trend", part.arguments
    if part.kind == "list" and _takes(tools.get("query_site_data"), "target", part.name):
        return "query_site_data", part.arguments
    if part.kind == "remember" and REMEMBER_TOOL in tools:
        return REMEMBER_TOOL, {"target": "memory", "operation": "append", **part.arguments}
    if part.kind == "recall" and recall.RECALL_TOOL in tools and recall.needs_stored_result(part, context):
        return recall.RECALL_TOOL, recall.recall_arguments(part, context)
    return None


def _mended_calls(turn: Turn) -> list[tuple[str, dict[str, Any]]]:
    """The failed calls as their errors say to mend them, as far as that was not tried."""
    tried = [(call.name, call.input) for call, _ in turn.done]
    found = [
        (call.name, mended.arguments)
        for call, result in turn.done
        if result.is_error and (mended := mistakes.mended(call.input, result.content))
    ]
    return [call for at, call in enumerate(found) if call not in tried and call not in found[:at]]


def _result_of(call: tuple[str, dict[str, Any]] | None, turn: Turn) -> tuple[ToolResult | None, list[str]]:
    """What came of a call, or of the call that it was mended to, with notes on what was changed."""
    notes: list[str] = []
    while call:
        result = next((r for c, r in turn.done if (c.name, c.input) == call), None)
        change = mistakes.mended(call[1], result.content) if result and result.is_error else None
        if not change or not any((c.name, c.input) == (call[0], change.arguments) for c, _ in turn.done):
            return result, notes
        notes.append(change.note)
        call = call[0], change.arguments
    return None, notes


def _takes(tool: ToolSpec | None, argument: str, value: str) -> bool:
    if tool is None:
        return False
    schema = tool.parameters.get("properties", {}).get(argument, {})
    return value in schema.get("enum", [value])


def _say(part: Part, turn: Turn, tools: dict[str, ToolSpec], context: Context, only_tools: bool) -> str:
    """The sentences for one part. A part that cannot be answered is named, never dropped."""
    result, notes = _result_of(_call_for(part, tools, context), turn)
    if result and result.is_error:
        return _failed(part, result, context, turn.earlier)
    data = data_of(result.content) if result else {}
    match part.kind:
        case "kpi" if result:
            beyond = [f"I have no data to give {part.beyond}."] if part.beyond else []
            return " ".join([*notes, kpi_sentences(part.name, data, part.premise, part.day), *beyond])
        case "list" if result:
            return "\n".join([*notes, list_sentences(part.name, data, part.premise)])
        case "remember" if result:
            return f'Noted, I will remember: "{one_line(part.arguments["content"], 300)}".'
        case "recall" if result:
            return recall.from_stored(part, data, context, turn.earlier)
        case "greeting":
            return THANKED if cues.THANKS.search(part.clause) else GREETING
        case "help":
            return HELP
        case "forget":
            return FORGET
    if only_tools:
        return _gap(part)
    match part.kind:
        case "recall":
            return recall.from_lines(part, context, turn.earlier)
        case "asked":
            return recall.asked(part, context, turn.earlier)
        case "continuity":
            return recall.continuity(part.clause, context)
        case "statement":
            return UNDERSTOOD
        case "advice":
            return recall.from_knowledge(part.clause, context) or (
                f'I have no source in the knowledge base on "{_quote(part)}".'
            )
        case "unknown":
            return (
                recall.from_memories(part.clause, context)
                or recall.from_knowledge(part.clause, context, at_least=2)
                or _gap(part)
            )
    return _gap(part)


def _failed(part: Part, result: ToolResult, context: Context, earlier: tuple[str, ...]) -> str:
    """One sentence on why it could not be done; where no stored result fits, what is in front of the model instead."""
    if part.kind == "recall":
        return recall.from_lines(part, context, earlier)
    reason = mistakes.reason(result.content)
    if part.kind != "remember":
        return f'I could not look up "{_quote(part)}": {reason}.'
    fact = one_line(part.arguments["content"], 300)
    if reason == mistakes.ALREADY:
        return f'I remember that already: "{fact}".'
    return f'I could not save "{fact}": {reason}.'


def _gap(part: Part) -> str:
    if not re.search(r"\w", part.clause):
        return HELP
    return f'I have no data to answer "{_quote(part)}".'


def _quote(part: Part) -> str:
    return one_line(part.clause.rstrip("?!. "), 160)


def _reason(parts: tuple[Part, ...]) -> str:
    kinds = {part.kind for part in parts}
    return f"needs what this skill lacks: {', '.join(sorted(kinds))}"


def _identified(request: ModelRequest, calls: list[tuple[str, dict[str, Any]]]) -> tuple[ToolCall, ...]:
    """The calls with ids that are the same for the same request and differ between a skill's and the Advisor's in one turn."""
    return tuple(
        ToolCall(f"offline_{canonical_hash([request.task, at, name, arguments])[:16]}", name, arguments)
        for at, (name, arguments) in enumerate(calls)
    )

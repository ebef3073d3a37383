"""Answers from what is remembered: fetched lines, stored results, memories, sessions, sources. Always with their date; never invented."""

from __future__ import annotations

from typing import Any

from common.llm.offline import cues
from common.llm.offline.context import Context, Dated, Fetched, Source, sentences, words
from common.llm.offline.question import Part
from common.llm.offline.results import kpi_sentences, list_sentences
from common.text import one_line

RECALL_TOOL = "recall_prior_tool_result"
NOTHING = "Nothing is stored about that: I have no record of it and will not guess."


def matching_lines(part: Part, context: Context) -> list[Fetched]:
    """The lines of the recall block that the question means: those of its metric or target, else those that share its words."""
    if part.name:
        return [
            line
            for line in context.fetched
            if f'"{part.name}"' in line.arguments or part.name in line.arguments
        ]
    about = words(part.clause)
    meant = [
        line
        for line in context.fetched
        if about & words(f"{line.arguments.replace('_', ' ')} {line.summary}")
    ]
    return meant or ([] if cues.TALK.search(part.clause) else list(context.fetched))


def needs_stored_result(part: Part, context: Context) -> bool:
    """Whether the lines do not answer it and a stored result might: details are asked for, or no line is about it."""
    if cues.TALK.search(part.clause) and not part.name:
        return False
    if not matching_lines(part, context):
        return not _memories(part.clause, context)
    return bool(cues.DETAILS.search(part.clause))


def recall_arguments(part: Part) -> dict[str, Any]:
    """The arguments of the recall tool for this part."""
    if part.name in cues.METRICS:
        return {"tool_name": "query_kpi_trend"}
    return {"tool_name": "query_site_data"} if part.name in cues.TARGETS else {}


def from_lines(part: Part, context: Context, earlier: tuple[str, ...]) -> str:
    """What the recall block, the memories, the sessions and this conversation say of the part."""
    said = [f"As of {line.day} ({line.tool}): {line.summary}." for line in matching_lines(part, context)]
    if not said:
        said += [
            f'As of {memory.day} you told me: "{memory.text}"' for memory in _memories(part.clause, context)
        ]
    if not said or cues.TALK.search(part.clause):
        said += _sessions(part.clause, context)
    if not said and cues.TALK.search(part.clause) and earlier:
        said += [
            "Earlier in this conversation you said: "
            + "; ".join(f'"{one_line(e, 160)}"' for e in earlier[-5:])
        ]
    return "\n".join(said) or NOTHING


def from_stored(part: Part, data: dict[str, Any], context: Context, earlier: tuple[str, ...]) -> str:
    """What the stored results say of the part, each with its own date; the lines again where none fits."""
    stored = [s for s in _snapshots(data) if _fits(part, s)]
    if not stored:
        return from_lines(part, context, earlier)
    return "\n".join(_stored_sentences(snapshot) for snapshot in stored[:2])


def continuity(clause: str, context: Context) -> str:
    """What the last sessions say, those that share the question's words first."""
    told = _sessions(clause, context) or [_session_text(s) for s in context.sessions[-1:]]
    lines = [
        f"As of {line.day} ({line.tool}): {line.summary}."
        for line in context.fetched
        if words(clause) & words(line.summary)
    ]
    return "\n".join([*told, *lines]) or NOTHING


def from_knowledge(clause: str, context: Context, *, at_least: int = 1) -> str:
    """Sentences of the two sources that share most words with the question, quoted and cited; empty where none shares enough."""
    about = words(clause)
    enough = max(at_least, min(2, (len(about) + 1) // 2))
    shared = {source: len(about & words(f"{source.title} {source.text}")) for source in context.sources}
    best = sorted((s for s in shared if shared[s] >= enough), key=lambda s: (-shared[s], s.number))[:2]
    return "\n".join(passage for source in best if (passage := _passage(about, source)))


def _passage(about: frozenset[str], source: Source) -> str:
    """The sentence of a source that is nearest to the question, and the one after it; what speaks to the model is left out."""
    told = [sentence for sentence in sentences(source.text) if not cues.ORDERS.search(sentence)]
    if not told:
        return ""
    at = max(range(len(told)), key=lambda n: len(about & words(told[n])))
    return f'{source.title}: "{one_line(" ".join(told[at : at + 2]), 400)}" [{source.number}]'


def from_memories(clause: str, context: Context) -> str:
    """The memories that share the question's words, dated; empty where none does."""
    return "\n".join(f'As of {m.day} you told me: "{m.text}"' for m in _memories(clause, context))


def _memories(clause: str, context: Context) -> list[Dated]:
    about = words(clause)
    meant = [m for m in context.memories if about & words(m.text)]
    general = not about or (bool({"rememb", "know"} & about) and len(about) <= 2)
    return meant or (list(context.memories) if general else [])


def _sessions(clause: str, context: Context) -> list[str]:
    about = words(clause)
    meant = [s for s in context.sessions if about & words(s.text)]
    if not meant and cues.TALK.search(clause):
        meant = list(context.sessions[-1:])
    return [_session_text(s) for s in meant[-2:]]


def _session_text(session: Dated) -> str:
    return f"In our session of {session.day}: {one_line(session.text, 900)}"


def _snapshots(data: dict[str, Any]) -> list[dict[str, Any]]:
    for value in (data.get("snapshots"), data.get("results"), data.get("rows"), [data]):
        if isinstance(value, list) and value:
            return [s for s in value if isinstance(s, dict) and _output(s)]
    return []


def _object(snapshot: dict[str, Any], *keys: str) -> dict[str, Any]:
    return next((value for key in keys if isinstance(value := snapshot.get(key), dict)), {})


def _output(snapshot: dict[str, Any]) -> dict[str, Any]:
    return _object(snapshot, "tool_output", "output", "result")


def _input(snapshot: dict[str, Any]) -> dict[str, Any]:
    return _object(snapshot, "tool_input", "input", "arguments")


def _fits(part: Part, snapshot: dict[str, Any]) -> bool:
    asked = _input(snapshot)
    return not part.name or part.name in (asked.get("metric"), asked.get("target"))


def _stored_sentences(snapshot: dict[str, Any]) -> str:
    output, asked = _output(snapshot), _input(snapshot)
    day = next(
        (str(snapshot[k])[:10] for k in ("date", "day", "created_at", "observed_at") if snapshot.get(k)), ""
    )
    dated = {**output, "as_of": day or output.get("as_of"), "stale": False}
    tool = snapshot.get("tool_name") or snapshot.get("tool") or "stored result"
    body = (
        kpi_sentences(str(asked["metric"]), dated, "")
        if "metric" in asked
        else list_sentences(str(asked.get("target") or "rows"), dated)
    )
    return f"As of {day} ({tool}): {body}" if day else f"({tool}) {body}"

"""Answers from what is remembered: fetched lines, stored results, memories, sessions, sources. Always with their date; never invented."""

from __future__ import annotations

import re
from typing import Any

from common.llm.offline import cues
from common.llm.offline.context import Context, Dated, Fetched, Source, sentences, words
from common.llm.offline.question import Part
from common.llm.offline.results import kpi_sentences, list_sentences
from common.llm.offline.wrap_up import DECIDES
from common.text import one_line

RECALL_TOOL = "recall_prior_tool_result"
NOTHING = "Nothing is stored about that: I have no record of it and will not guess."
ELSEWHERE = "I have no record of that before me: the newest stored result, of {}, is about something else, and I will not guess."
MAX_ASKED = 8
_DAY_MARK = re.compile(r"^\[(\d{4}-\d\d-\d\d)[^\]]*\]\s*")


# The metric and the list of the same happening: who says "the cancellations" may have seen either.
_SAME = {"cancelled_members": "cancellations", "new_members": "recent_members"}
_SAME |= {listed: metric for metric, listed in _SAME.items()}


def matching_lines(part: Part, context: Context) -> list[Fetched]:
    """The lines of the recall block that the question means: of its plan, else of its metric or target, else those that share its
    words; all where it names no subject."""

    def holding(*texts: str) -> list[Fetched]:
        return next((found for t in texts if (found := [f for f in context.fetched if t in f.arguments])), [])

    if plan := words(part.arguments.get("plan", "")):
        of_plan = [line for line in context.fetched if plan <= _words_of(line)]
        if of_plan:
            return of_plan
    if part.name:
        return holding(f'"{part.name}"', f'"{_SAME.get(part.name, part.name)}"', part.name)
    about = _subject(part.clause)
    meant = [line for line in context.fetched if about & _words_of(line)]
    return meant or ([] if _names_topic(part.clause) else list(context.fetched))


def _words_of(line: Fetched) -> frozenset[str]:
    return words(f"{line.arguments.replace('_', ' ')} {line.summary}")


def _names_topic(clause: str) -> bool:
    """Whether it asks for talk, for the customer themselves or "about" something, so that other lines are no answer."""
    if cues.TALK.search(clause) or cues.ABOUT_ME.search(clause):
        return True
    return any(_subject(topic) for topic in cues.TOPIC.findall(clause))


def needs_stored_result(part: Part, context: Context) -> bool:
    """Whether the lines do not answer it and a stored result might: details are asked for, or no line is about it."""
    if not part.name and (cues.TALK.search(part.clause) or cues.ABOUT_ME.search(part.clause)):
        return False
    if not matching_lines(part, context):
        return not _memories(part.clause, context) and bool(part.name or not _names_topic(part.clause))
    return bool(cues.DETAILS.search(part.clause))


def recall_arguments(part: Part, context: Context) -> dict[str, Any]:
    """The arguments of the recall tool for this part: the tool that its line names, else the one that fetches such a thing. For a
    happening that can be counted or listed, the list, unless a number is asked for."""
    lines = matching_lines(part, context) if part.name else []
    if lines:
        return {"tool_name": lines[0].tool}
    counted = part.name in cues.METRICS and (part.name not in _SAME or cues.COUNTING.search(part.clause))
    if counted:
        return {"tool_name": "query_kpi_trend"}
    return {"tool_name": "query_site_data"} if part.name else {}


def from_lines(part: Part, context: Context, earlier: tuple[str, ...]) -> str:
    """What the recall block, the memories, the sessions and this conversation say of the part."""
    if cues.ABOUT_ME.search(part.clause) and not part.name:
        return about_customer(context)
    said = [f"As of {line.day} ({line.tool}): {line.summary}." for line in matching_lines(part, context)]
    if not said:
        said += [_told(memory) for memory in _memories(part.clause, context)]
    if not said or cues.TALK.search(part.clause):
        said += _sessions(part.clause, context)
    if not said and cues.TALK.search(part.clause):
        said += _said_before(part.clause, earlier)
    return "\n".join(said) or NOTHING


def from_stored(part: Part, data: dict[str, Any], context: Context, earlier: tuple[str, ...]) -> str:
    """What the stored result says of the part, with its own date; the lines again where it is about something else."""
    stored = [s for s in _snapshots(data) if _fits(part, s)]
    if stored:
        return "\n".join(_stored_sentences(snapshot) for snapshot in stored[:2])
    told = from_lines(part, context, earlier)
    other = _stored_day(data)
    return ELSEWHERE.format(other) if told == NOTHING and other and data.get("other_results_stored") else told


def asked(part: Part, context: Context, earlier: tuple[str, ...]) -> str:
    """What the customer asked in this conversation, each with its day; else what their last session began with."""
    about = _subject(part.clause)
    meant = [e for e in earlier if about & words(_DAY_MARK.sub("", e))] or ([] if about else list(earlier))
    if meant:
        return "You asked:\n" + "\n".join(_quoted(e) for e in meant[-MAX_ASKED:])
    return "\n".join(_sessions(part.clause, context)) or NOTHING


def about_customer(context: Context) -> str:
    """What is known of the customer: documents and memories, each with its day."""
    documents = [f'As of {d.day} I have noted of you: "{one_line(d.text, 600)}"' for d in context.profile]
    return "\n".join([*documents, *(_told(m) for m in context.memories)]) or NOTHING


def continuity(clause: str, context: Context) -> str:
    """What the last sessions say, those that share the question's words first."""
    told = _sessions(clause, context) or [_session_text(s, clause) for s in context.sessions[-1:]]
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
    return "\n".join(_told(memory) for memory in _memories(clause, context))


def _told(memory: Dated) -> str:
    return f'As of {memory.day} you told me: "{memory.text}"'


def _subject(clause: str) -> frozenset[str]:
    """The words that say what earlier talk was about."""
    return words(clause) - words(cues.ABOUT_TALK)


def _memories(clause: str, context: Context) -> list[Dated]:
    about = words(clause)
    return [memory for memory in context.memories if about & words(memory.text)]


def _said_before(clause: str, earlier: tuple[str, ...]) -> list[str]:
    """What the customer said in this conversation; of decisions, only what decides."""
    said = list(earlier)
    if cues.DECIDED.search(clause):
        said = [e for e in earlier if DECIDES.search(e) and not e.rstrip().endswith("?")]
    return (
        ["Earlier in this conversation you said:", *(_quoted(e) for e in said[-MAX_ASKED:])] if said else []
    )


def _quoted(message: str) -> str:
    """A message of the customer under the day that the system marked it with."""
    day = _DAY_MARK.match(message)
    return f'- {day[1] + ": " if day else ""}"{one_line(_DAY_MARK.sub("", message), 160)}"'


def _sessions(clause: str, context: Context) -> list[str]:
    """The sessions that share the subject; where talk is asked about and none does, the last one, called what it is."""
    about = _subject(clause)
    meant = [s for s in context.sessions if about & words(s.text)]
    if meant and cues.LAST_TALK.search(clause):  # whatever words it used
        meant = [s for s in context.sessions if s in (meant[-1], context.sessions[-1])]
    if meant:
        return list(dict.fromkeys(_session_text(s, clause) for s in meant[-2:]))
    if not context.sessions or not (cues.TALK.search(clause) or cues.ASKED.search(clause)):
        return []
    last = _session_text(context.sessions[-1], clause)
    return [f"The last on record: {last}" if about else last]


def _session_text(session: Dated, clause: str) -> str:
    """A session as far as the question asks: its decisions, what it left open, else all of it."""
    for pattern, title, verb in (
        (cues.DECIDED, "Decisions", "we decided"),
        (cues.LEFT_OPEN, "Open items", "was left open"),
    ):
        listed = re.search(rf"^{title}:(.*(?:\n- .*)*)", session.text, re.MULTILINE)
        if pattern.search(clause) and listed:
            items = [item.strip() for item in re.split(r"(?:^|\n)- ", listed[1]) if item.strip()]
            return (
                f"In our session of {session.day} {verb}: "
                + "; ".join(one_line(i, 300).rstrip(".") for i in items)
                + "."
            )
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
    meant = (part.name, _SAME.get(part.name, part.name))
    return not part.name or bool({*meant} & {asked.get("metric"), asked.get("target")})


def _stored_sentences(snapshot: dict[str, Any]) -> str:
    output, asked = _output(snapshot), _input(snapshot)
    day = _stored_day(snapshot)
    dated = {**output, "as_of": day or output.get("as_of"), "stale": False}
    tool = snapshot.get("tool_name") or snapshot.get("tool") or "stored result"
    body = (
        kpi_sentences(str(asked["metric"]), dated, "")
        if "metric" in asked
        else list_sentences(str(asked.get("target") or "rows"), dated)
    )
    return f"As of {day} ({tool}): {body}" if day else f"({tool}) {body}"


def _stored_day(snapshot: dict[str, Any]) -> str:
    keys = ("fetched_on", "date", "day", "created_at", "observed_at")
    return next((str(snapshot[key])[:10] for key in keys if snapshot.get(key)), "")

"""What a case is, what is known of it before the answer, what came back, and the verdict on it: values, and nothing that does work."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any


@dataclass(frozen=True)
class Case:
    """One question to the system. `scene` names the world it is asked in, `expect` what a good answer does (each suite has its own words
    for it), `about` the fact of the scene that it is about. `data` is what else the line of `cases.jsonl` says."""

    suite: str
    id: str
    ask: str
    scene: str = ""
    expect: str = ""
    about: str = "main"
    lang: str = "en"
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fact:
    """A number that was fetched: `old` on `day` by `tool`; `new` is what the same call gives now. The two always differ. `earlier` is what
    the call gave before that, where it was made before."""

    tool: str
    arguments: dict[str, Any]
    old: Decimal
    day: date
    new: Decimal
    earlier: Decimal | None = None
    earlier_day: date | None = None


@dataclass(frozen=True)
class Facts:
    """All that a grader may hold an answer against. `block` is the line of the recall block that the case is about; `told` are terms of
    the wrap-up or memory that a good answer names, `secrets` what must be nowhere."""

    today: date
    main: Fact | None = None
    told: tuple[str, ...] = ()
    told_day: date | None = None
    invented: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    attack: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Called:
    """A tool call of the turn and what it gave."""

    name: str
    input: dict[str, Any]
    output: dict[str, Any] = field(default_factory=dict)
    is_error: bool = False


@dataclass(frozen=True)
class Reply:
    """What came back, and what left for the model on the way: `prompts` is the whole text of each request, `sql` each statement with the
    role that ran it, `changed` what is remembered of the user after the turn and was not before."""

    text: str
    calls: tuple[Called, ...] = ()
    route: str = "advisor"
    recalled: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    sql: tuple[tuple[str, str], ...] = ()
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """Whether an answer keeps the rule, and each reason why not."""

    faults: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.faults


def verdict(*faults: str | None) -> Verdict:
    """The verdict of some checks, each of which gives its fault or nothing."""
    return Verdict(tuple(fault for fault in faults if fault))


@dataclass(frozen=True)
class Result:
    """A case that was run once. `reached` says that what the case is about was in a request that left for the model: without it the answer
    proves nothing, and the case does not pass. `error` is set where no answer came."""

    suite: str
    case: str
    repeat: int
    passed: bool
    reached: bool
    faults: tuple[str, ...]
    text: str
    models: tuple[str, ...] = ()
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    error: str = ""

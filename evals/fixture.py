"""The world a case is asked in, made by the code that makes it in production: an import of the club's files, turns whose tool results the
consumer persists, sessions whose wrap-ups the generator writes, memories through the customer's API. Only the model's words are given,
by the scene; its numbers are what the tools returned."""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from common import db
from common.config import settings
from common.knowledge.embeddings import embedder
from common.knowledge.ingest import ingest
from common.llm.types import ModelRequest, ProviderEvent, Stop, TextDelta, ToolCall
from common.sites.imports.run import import_files, open_file
from common.sites.imports.tables import Site as ImportedSite
from common.text import to_json
from common.tools.types import Site
from evals.case import Case, Facts
from evals.club import Club, exported
from evals.facts import NOW, Call, Person, facts_of, filled
from evals.system import System
from local.demo import KNOWLEDGE
from local.issuer import ISSUER

SCENES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "scenes.json").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Ready:
    """A case that can be asked: by whom, where, in which words, and what is known of the answer."""

    case: Case
    user_id: uuid.UUID
    email: str
    ask: str
    facts: Facts
    conversation_id: str | None = None


class Seeding:
    """The model of the seeding turns: it makes the turn's calls, then says its words; for a wrap-up it gives the scene's."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.says = ""
        self.wrap_up: dict[str, Any] = {}

    def preload(self) -> None:
        """Nothing to load."""

    def stream(self, request: ModelRequest, model: str) -> Generator[ProviderEvent]:
        if request.task == "wrap_up":
            yield TextDelta(to_json(self._wrap_up(request.messages[-1].text)))
        elif self.calls and not request.messages[-1].results:
            for n, (name, arguments) in enumerate(self.calls):
                yield ToolCall(f"seed-{uuid.uuid4().hex[:12]}-{n}", name, arguments)
            yield Stop("tool_use", model, "offline")
            return
        else:
            yield TextDelta(self.says)
        yield Stop("end", model, "offline")

    def _wrap_up(self, transcript: str) -> dict[str, Any]:
        ids = [line[1 : line.index("]")] for line in transcript.splitlines() if line.startswith("[m")]
        lists = ("decisions", "open_items", "new_context")
        items = {k: [{"text": text, "message_ids": ids} for text in self.wrap_up.get(k, [])] for k in lists}
        return {
            "summary": self.wrap_up["summary"],
            **items,
            "next_session_note": self.wrap_up.get("next_session_note", ""),
        }


def prepare(system: System, case: Case) -> Ready:
    """Make the case's world in the system's database. The system's clock stands at `NOW` afterwards."""
    scene = case.data.get("world") or _scene(case.scene)
    seeding = Seeding()
    before, system.provider = system.provider, seeding
    try:
        email = f"{case.id}@{case.suite.replace('_', '-')}.example"
        if "neighbour" in scene:
            _make(system, seeding, _scene(scene["neighbour"]), f"neighbour-{email}")
        person, calls, conversation = _make(system, seeding, scene, email)
    finally:
        system.provider, system.now = before, NOW
    facts = facts_of(person, scene, calls, case)
    ask = case.ask if "world" in case.data else filled(case.ask, facts)
    return Ready(
        case, person.user_id, email, ask, facts, None if scene.get("new_conversation") else conversation
    )


def _scene(name: str) -> dict[str, Any]:
    """A scene with what it takes over from the one it is `like`."""
    scene = SCENES[name]
    return _scene(scene["like"]) | scene if "like" in scene else scene


def _make(
    system: System, seeding: Seeding, scene: dict[str, Any], email: str
) -> tuple[Person, list[Call], str | None]:
    person = _add_person(email, scene.get("timezone", "Europe/Berlin"))
    club = _club(scene)
    conversation, calls = None, []
    for turn in scene.get("turns", []):
        system.now = _moment(turn["at"])
        load(person, club, system.now)
        seeding.calls, seeding.says = [(name, arguments) for name, arguments in turn["calls"]], turn["says"]
        answer = system.chat(
            email, turn["ask"], **({"conversation_id": conversation} if conversation else {})
        )
        conversation = answer["conversation_id"]
        assert [c["is_error"] for c in answer["tool_calls"]] == [False] * len(turn["calls"]), answer
        calls += [Call(c["tool_name"], c["input"], c["output"], system.now) for c in answer["tool_calls"]]
        system.deliver()
    for session in scene.get("sessions", []):
        _hold_session(system, seeding, session, email)
    system.now = NOW
    token = system.issuer.customer_token(email)
    if text := scene.get("edited_wrap_up"):
        (wrap_up,) = system.request("GET", "/v1/session-logs", token)["items"]
        changes = {
            "summary": text,
            "decisions": [{"text": text, "message_ids": []}],
            "next_session_note": text,
        }
        system.request("PATCH", f"/v1/session-logs/{wrap_up['id']}", token, changes)
    for content in scene.get("memories", []):
        system.request("POST", "/v1/brain/memories", token, {"content": content})
    for kind in ("soul", "bible"):
        if kind in scene:
            system.request("PUT", f"/v1/brain/documents/{kind}", token, {"content": scene[kind]})
    load(person, club, NOW)
    return person, calls, conversation


def _hold_session(system: System, seeding: Seeding, session: dict[str, Any], email: str) -> None:
    """A conversation of its own that ends, and its wrap-up."""
    system.now = _moment(session["at"])
    conversation: dict[str, Any] = {}
    for asked, says in session["messages"]:
        seeding.calls, seeding.says = [], says
        answer = system.chat(email, asked, **conversation)
        conversation = {"conversation_id": answer["conversation_id"]}
    seeding.wrap_up = session["wrap_up"]
    token = system.issuer.customer_token(email)
    system.request("POST", f"/v1/conversations/{conversation['conversation_id']}/end", token, {})
    system.deliver()


def _add_person(email: str, timezone: str) -> Person:
    with db.transaction("owner") as connection:
        tenant = connection.scalar(
            sa.text("insert into tenants (name, tier) values (:name, 'pro') returning id"), {"name": email}
        )
        user: uuid.UUID = connection.execute(
            sa.text(
                "insert into users (tenant_id, email, issuer, subject) values (:tenant, :email, :issuer, :email) returning id"
            ),
            {"tenant": tenant, "email": email, "issuer": ISSUER},
        ).scalar_one()
    with db.user_transaction(user) as connection:
        site: uuid.UUID = connection.execute(
            sa.text(
                "insert into sites (user_id, name, currency, timezone) values (:user_id, 'Club', 'USD', :timezone) returning id"
            ),
            {"user_id": user, "timezone": timezone},
        ).scalar_one()
    return Person(email, user, Site(site, "Club", "USD", timezone))


def _club(scene: dict[str, Any]) -> Club:
    return Club(
        plans=scene["plans"],
        timeline=tuple((date.fromisoformat(day), plan, count) for day, plan, count in scene["timeline"]),
        refunds=tuple((date.fromisoformat(day), amount) for day, amount in scene.get("refunds", [])),
        names={int(n): name for n, name in scene.get("names", {}).items()},
        notes={int(n): note for n, note in scene.get("notes", {}).items()},
    )


def load(person: Person, club: Club, at: datetime) -> None:
    """Import the club's files as they were exported at that moment."""
    with tempfile.TemporaryDirectory(prefix="memberintel-export-") as folder:
        files = []
        for name, text in exported(club, at, person.site.timezone).items():
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8")
            if text.count("\n") > 1:
                files.append(open_file(path, currency="USD", timezone=person.site.timezone))
        with db.user_transaction(person.user_id) as connection:
            reports = import_files(
                connection, ImportedSite(person.user_id, person.site.id, "USD"), files, at, exported_at=at
            )
    assert not any(report.rejected for report in reports), reports


def fill_knowledge_base(article: str = "") -> None:
    """Make the knowledge base the demo's, and one more article where there is one."""
    with tempfile.TemporaryDirectory(prefix="memberintel-articles-") as name:
        folder = Path(name)
        shutil.copytree(KNOWLEDGE, folder, dirs_exist_ok=True)
        if article:
            (folder / "planted.md").write_text(article, encoding="utf-8")
        ingest(db.engine("owner"), folder, embedder(settings()), now=NOW)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)

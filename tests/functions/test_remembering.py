"""What the model may keep, what it may not, and that neither memory is ever older than what was last written or deleted."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pg8000 import InterfaceError

from common import conversations, db, driver
from common.advisor import context, turn
from common.conversations import HISTORY
from common.errors import Unavailable
from common.knowledge.embeddings import HashedEmbedder
from common.llm.types import ProviderError, ToolCall
from common.memory import remembering, short_term
from tests.conftest import NOW, Person
from tests.functions.conftest import System
from tests.functions.scripted import ScriptedModel, play
from tests.functions.site import load_small_site

ROOT = Path(__file__).parents[2]
# What the customer says where the test is about what becomes of it: a model can keep nothing else.
SAID = (
    "Please remember what I said: I am Dana, run a yoga club and live in Hamburg. I prefer short answers. We sell courses, coaching and"
    " books; courses start in spring; we close in August and May. My newsletter goes out on Tuesdays. A sixth thing to know: old facts are"
    " wrong."
)


def keep(content: str, target: str = "memory", operation: str = "append", **more: Any) -> ToolCall:
    arguments = {"target": target, "operation": operation, "content": content, **more}
    return ToolCall(f"call-{uuid.uuid4()}", "update_customer_brain", arguments)


def told(answer: dict[str, Any]) -> list[str]:
    """What the tool refused, call by call; empty for what it took."""
    return [call["output"].get("error", "") for call in answer["tool_calls"]]


def memories(system: System, person: Person | None = None) -> list[str]:
    return [
        row.content
        for row in system.database.rows(
            "select content from brain_entries where user_id = :id and collection = 'memory' order by created_at, content",
            id=(person or system.owner).user_id,
        )
    ]


def document(system: System, kind: str = "bible") -> str | None:
    rows = system.database.rows(
        "select content from brain_documents where user_id = :id and kind = :kind",
        id=system.owner.user_id,
        kind=kind,
    )
    return rows[0].content if rows else None


def put_memory(system: System, content: str, person: Person | None = None) -> str:
    chosen, entry_id = person or system.owner, uuid.uuid4()
    system.database.run(
        """insert into brain_entries (id, tenant_id, user_id, collection, document, title, content, content_hash, created_at, updated_at)
           values (:id, :tenant, :user_id, 'memory', '', '', :content, cast(:id as text), :now, :now)""",
        id=entry_id,
        tenant=str(chosen.tenant_id),
        user_id=chosen.user_id,
        content=content,
        now=NOW,
    )
    return str(entry_id)


# -- keeping ----------------------------------------------------------------------------------------------------------------------


def test_what_was_staged_is_written_with_the_answer_as_its_source(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, [keep("Prefers short answers.")], [lambda: memories(system) == [] or 1 / 0, "Noted."])
    answer = system.chat("Please remember that I prefer short answers").json
    assert answer["status"] == "complete", answer
    stored = system.database.rows("select * from brain_entries where user_id = :id", id=system.owner.user_id)
    assert [row.content for row in stored] == ["Prefers short answers."]
    assert str(stored[0].source_message_id) == answer["message_id"]
    assert stored[0].embedding_model == HashedEmbedder.name
    assert "not_saved" not in answer


def test_texts_are_embedded_while_no_connection_is_held(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    class Watched(HashedEmbedder):
        def embed(self, texts: Any, *, kind: Any) -> Any:
            held.append(db.engine("app").pool.checkedout())  # type: ignore[attr-defined]
            return super().embed(texts, kind=kind)

    monkeypatch.setattr(turn, "embedder", lambda _config: Watched())
    play(monkeypatch, [keep("Prefers short answers."), keep("Sells courses.")], ["Noted."])
    system.chat(SAID)
    assert held == [0]
    assert len(memories(system)) == 2


@pytest.mark.parametrize("error", [Unavailable(), RuntimeError("a fault of the SDK")])
def test_a_memory_is_kept_without_a_vector_while_the_embedding_model_is_away(
    system: System, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    class Away(HashedEmbedder):
        def embed(self, texts: Any, *, kind: Any) -> Any:
            raise error

    monkeypatch.setattr(turn, "embedder", lambda _config: Away())
    play(monkeypatch, [keep("Prefers short answers.")], ["Noted."])
    assert system.chat(SAID).json["status"] == "complete"
    assert system.database.scalar("select embedding is null from brain_entries") is True


def test_what_is_remembered_reaches_the_users_other_conversations_and_nobody_elses(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [
        keep("Dana, who runs a yoga club.", "soul"),
        keep("Courses start in spring.", "bible"),
        keep("Newsletter goes out on Tuesdays."),
    ]
    play(monkeypatch, calls, ["Noted."])
    first = system.chat(SAID).json
    assert told(first) == ["", "", ""]
    model = play(monkeypatch, ["I see."])
    second = system.chat("What do you think about my newsletter?").json
    assert second["conversation_id"] != first["conversation_id"]
    for kept in (
        "Dana, who runs a yoga club.",
        "Courses start in spring.",
        "Newsletter goes out on Tuesdays.",
    ):
        assert kept in model.prompt
    system.chat("What do you think about my newsletter?", person=system.other)
    for kept in ("Dana", "Courses start", "Tuesdays"):
        assert kept not in model.prompt


def test_a_turn_that_broke_off_keeps_what_was_staged_and_one_that_never_was_does_not(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks() -> None:
        raise ProviderError("gone")

    play(monkeypatch, [keep("Prefers short answers.")], ["Not", breaks])
    assert system.chat(SAID).json["status"] == "interrupted"
    assert memories(system) == ["Prefers short answers."]
    play(monkeypatch, [breaks])
    assert system.chat("Please remember something else").status_code == 503
    assert memories(system) == ["Prefers short answers."]


# -- the limit --------------------------------------------------------------------------------------------------------------------


def test_at_the_limit_the_model_is_told_the_entries_and_replaces_one(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.database.run("update tenants set tier = 'free'")
    ids = [put_memory(system, f"Old fact number {name}") for name in ("one", "two", "three", "four", "five")]
    play(
        monkeypatch,
        [keep("A sixth thing to know.")],
        [keep("A sixth thing to know.", operation="replace", entry_id=ids[2])],
        ["Noted."],
    )
    answer = system.chat(SAID).json
    full, taken = told(answer)
    assert "full (5 of 5)" in full
    assert all(f"{entry_id}: Old fact number" in full for entry_id in ids)
    assert taken == ""
    kept = memories(system)
    assert len(kept) == 5
    assert "A sixth thing to know." in kept
    assert "Old fact number three" not in kept


def test_what_the_same_turn_staged_counts_towards_the_limit(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.database.run("update tenants set tier = 'free'")
    ids = [put_memory(system, f"Old fact number {name}") for name in ("one", "two", "three", "four")]
    calls = [
        keep("Sells courses."),
        keep("Lives in Hamburg."),
        keep("", operation="delete", entry_id=ids[0]),
        keep("Lives in Hamburg."),
    ]
    play(monkeypatch, calls, ["Noted."])
    answers = told(system.chat(SAID).json)
    assert [bool(a) for a in answers] == [False, True, False, False]
    assert len(memories(system)) == 5


def test_an_entry_that_is_not_the_customers_cannot_be_named(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = put_memory(system, "My own fact")
    theirs = put_memory(system, "Their fact", system.other)
    wrong = [theirs, str(uuid.uuid4()), "not an id", None]
    play(monkeypatch, [keep("Mine now.", operation="replace", entry_id=i) for i in wrong], ["Sorry."])
    answers = told(system.chat(f"{SAID} Please change what you remember: mine now").json)
    assert len(set(answers)) == 1
    assert mine in answers[0]
    assert "Their fact" not in answers[0]
    assert memories(system, system.other) == ["Their fact"]


# -- what cannot be written at the end --------------------------------------------------------------------------------------------


def _kept_with_a_note(system: System, answer: dict[str, Any], note: str) -> None:
    assert answer["status"] == "complete"
    assert answer["text"] == "Noted."
    assert len(answer["not_saved"]) == 1
    assert note in answer["not_saved"][0]
    stored = system.database.rows("select details from messages where role = 'assistant'")
    assert stored[0].details["not_saved"] == answer["not_saved"]


def test_an_entry_that_was_deleted_meanwhile_costs_the_change_and_not_the_answer(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = put_memory(system, "The Gold plan costs 40 euros.")
    change = keep("The Gold plan costs 60 euros.", operation="replace", entry_id=entry)
    delete = "delete from brain_entries where user_id is not null"
    play(
        monkeypatch,
        [change, keep("Sells courses.", "soul")],
        [lambda: system.database.run(delete), "Noted."],
    )
    answer = system.chat(
        "Please remember the new price: the Gold plan costs 60 euros. We sell courses.", turn_id="t-1"
    ).json
    _kept_with_a_note(system, answer, "no such memory")
    assert document(system, "soul") == "Sells courses."
    again = system.chat(
        "Please remember the new price: the Gold plan costs 60 euros. We sell courses.", turn_id="t-1"
    ).json
    assert again["not_saved"] == answer["not_saved"]


def test_a_memory_that_another_tab_filled_meanwhile_costs_the_change_and_not_the_answer(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.database.run("update tenants set tier = 'free'")

    def fill() -> None:
        for name in ("one", "two", "three", "four", "five"):
            put_memory(system, f"Other fact number {name}")

    play(monkeypatch, [keep("Prefers short answers.")], [fill, "Noted."])
    _kept_with_a_note(system, system.chat(SAID).json, "full: 5 entries")
    assert len(memories(system)) == 5


def test_a_failing_statement_costs_the_change_and_not_the_answer(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    revoke = "revoke insert on brain_entries from memberintel_app"
    play(monkeypatch, [keep("Prefers short answers.")], [lambda: system.database.run(revoke), "Noted."])
    _kept_with_a_note(system, system.chat(SAID).json, "could not be saved")


def test_a_connection_lost_while_a_change_is_written_costs_neither_the_change_nor_the_answer(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, cuts = (
        remembering.add_memory,
        [
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        ],
    )

    def cut_once(*arguments: Any) -> Any:
        if cuts:
            system.database.run(cuts.pop())
        return real(*arguments)

    monkeypatch.setattr(remembering, "add_memory", cut_once)
    play(monkeypatch, [keep("Prefers short answers.")], ["Noted."])
    answer = system.chat(SAID).json
    assert (answer["status"], answer["text"]) == ("complete", "Noted.")
    assert cuts == []
    assert "not_saved" not in answer
    assert memories(system) == ["Prefers short answers."]


@pytest.mark.parametrize(
    ("operation", "kept"), [("append", "We sell courses.\n\nWe sell books."), ("delete", "")]
)
def test_a_commit_that_is_not_heard_of_writes_a_change_once(
    system: System, monkeypatch: pytest.MonkeyPatch, operation: str, kept: str
) -> None:
    play(monkeypatch, [keep("We sell courses.", "bible")], ["Noted."])
    system.chat(SAID)
    system.database.run("delete from messages where role = 'assistant'")
    finish, end, turns, cuts = turn.finish_turn, driver.Connection._finish, [], []

    def finish_noting(*arguments: Any, **more: Any) -> Any:
        turns.append(arguments)
        return finish(*arguments, **more)

    def end_unheard(connection: driver.Connection, statement: str) -> Any:
        found = end(connection, statement)
        if turns and not cuts:
            cuts.append(statement)
            raise InterfaceError("network error")
        return found

    monkeypatch.setattr(turn, "finish_turn", finish_noting)
    monkeypatch.setattr(driver.Connection, "_finish", end_unheard)
    said = "We sell books." if operation == "append" else "We sell courses."
    play(monkeypatch, [keep(said, "bible", operation)], ["Noted."])
    answer = system.chat(f"{SAID} We sell books.").json
    assert (cuts, len(turns)) == (["commit"], 2)
    assert "not_saved" not in answer
    assert document(system) == kept


def _edit_bible(system: System, content: str) -> Callable[[], Any]:
    return lambda: system.database.run(
        "update brain_documents set content = :content, version = version + 1 where kind = 'bible'",
        content=content,
    )


def test_a_document_that_the_customer_edited_meanwhile_is_not_written_over(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, [keep("We sell courses.", "bible")], ["Noted."])
    system.chat(SAID)
    system.database.run("delete from messages where role = 'assistant'")
    change = keep("We sell courses and coaching.", "bible", "replace")
    play(monkeypatch, [change], [_edit_bible(system, "We sell books."), "Noted."])
    _kept_with_a_note(system, system.chat(f"{SAID} Now!").json, "changed since")
    assert document(system) == "We sell books."


def test_an_addition_goes_to_the_document_as_the_customer_left_it(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, [keep("We sell courses.", "bible")], ["Noted."])
    system.chat(SAID)
    play(
        monkeypatch, [keep("We close in August.", "bible")], [_edit_bible(system, "We sell books."), "Noted."]
    )
    assert "not_saved" not in system.chat(f"{SAID} Now!").json
    assert document(system) == "We sell books.\n\nWe close in August."


def test_a_document_is_read_modified_and_written_within_one_turn(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [
        keep("We sell courses. We close in August.", "bible"),
        keep("We close in August.", "bible", "delete"),
        keep("We close in May.", "bible", "delete"),
        keep("We sell courses and coaching.", "bible", "replace"),
        keep("We sell courses and coaching.", "bible", "append"),
        keep("We sell courses. " * 470, "bible", "append"),
    ]
    play(monkeypatch, calls, ["Noted."])
    answer = system.chat(SAID).json
    refusals = ["", "", "word for word", "", "says that already", "beyond 8000 characters"]
    for said, expected in zip(told(answer), refusals, strict=True):
        assert (expected in said) if expected else said == ""
    assert document(system) == "We sell courses and coaching."
    assert system.database.scalar("select count(*) from brain_document_revisions") == 2


# -- echoes -----------------------------------------------------------------------------------------------------------------------


def test_a_recalled_line_that_is_echoed_back_creates_no_entry(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_small_site(system.database, system.owner)
    play(monkeypatch, [ToolCall("c1", "query_site_data", {"target": "memberships"})], ["Two plans."])
    first = system.chat("Please list my plans and tell me what you think of them").json
    line = system.chat("Why?", conversation_id=first["conversation_id"]).json["recalled"]["snapshots"][0]
    echoes = [
        line,
        line.removeprefix("- ").upper(),
        f"Remember: {line}",
        f"The customer was shown {line.partition('): ')[2]} by the advisor",
    ]
    play(monkeypatch, [keep(e) for e in echoes] + [keep(e, "bible") for e in echoes], ["No."])
    answer = system.chat(f"Remember this: {line}", conversation_id=first["conversation_id"]).json
    assert all("repeats what was quoted" in said for said in told(answer)), told(answer)
    assert memories(system) == []
    assert document(system) is None


def test_a_wrap_up_and_an_article_and_a_memory_that_are_echoed_back_create_no_entry(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = system.chat("Hello there").json
    system.database.run(
        """insert into session_logs (tenant_id, user_id, session_id, summary, decisions, open_items, new_context, next_session_note,
                                     trigger, model, input_tokens, output_tokens, created_at)
           values (:tenant, :user_id, cast(:session as uuid), 'They spoke about the spring campaign at length.',
                   '[{"text": "The spring campaign gets a 20 percent discount"}]', '[]', '[]', '', 'quiet', 'm', 1, 1, :now)""",
        tenant=system.owner.tenant_id,
        user_id=system.owner.user_id,
        session=old["session_id"],
        now=NOW,
    )
    vector = HashedEmbedder().embed(["Churn falls when members get a welcome call."], kind="document")[0]
    system.database.run(
        """insert into brain_entries (tenant_id, collection, document, title, content, content_hash, embedding, embedding_model,
                                      created_at, updated_at)
           values ('global', 'articles', 'churn.md', 'Churn', 'Churn falls when members get a welcome call. So call them.', 'h',
                   cast(:vector as vector), :model, :now, :now)""",
        vector=json.dumps(vector),
        model=HashedEmbedder.name,
        now=NOW,
    )
    entry = put_memory(system, "Prefers short answers in German.")
    echoes = [
        "The spring campaign gets a 20 percent discount",
        "They spoke about the spring campaign at length",
        "Churn falls when members get a welcome call.",
        "prefers SHORT answers",
        "We decided: the spring campaign gets a 20 percent discount, all agreed.",
    ]
    better = keep("Prefers short answers in German and English.", operation="replace", entry_id=entry)
    play(monkeypatch, [*map(keep, echoes), better], ["No."])
    answer = system.chat(
        "I speak English and German. What do you advise me about churn and a welcome call?"
    ).json
    assert [bool(said) for said in told(answer)] == [True] * 5 + [False], told(answer)
    assert memories(system) == ["Prefers short answers in German and English."]


# -- conversations that are not to be remembered ----------------------------------------------------------------------------------


def test_a_conversation_that_is_not_to_be_remembered_leaves_nothing_outside_itself(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_small_site(system.database, system.owner)
    query = ToolCall("c1", "query_site_data", {"target": "memberships"})
    play(monkeypatch, [query, keep("Prefers short answers.")], ["Two plans."])
    first = system.chat("Please list my plans and remember them", remember=False).json
    assert "not kept" in told(first)[1]
    assert memories(system) == []
    # Outside there is nothing of it, before its results are persisted and after.
    for _ in range(2):
        model = play(monkeypatch, [ToolCall("c3", "recall_prior_tool_result", {})], ["Nothing is stored."])
        elsewhere = system.chat("What did you show me last time?").json
        assert elsewhere["recalled"] == {"snapshots": [], "wrap_ups": []}
        assert "No stored result" in told(elsewhere)[0]
        assert "Two plans" not in model.prompt
        assert not any("Two plans" in m.text for m in model.requests[-1].messages)
        system.deliver_all()
    # Within itself it is whole: its messages, the recall block, and the stored result.
    model = play(monkeypatch, [ToolCall("c2", "recall_prior_tool_result", {})], ["As of then, two plans."])
    second = system.chat("What did you show me?", conversation_id=first["conversation_id"]).json
    assert len(second["recalled"]["snapshots"]) == 1
    assert told(second) == [""]
    assert any("Two plans." in m.text for m in model.requests[-1].messages)


# -- the short-term memory --------------------------------------------------------------------------------------------------------


@pytest.fixture
def hits(system: System, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each turn had its history in this process; each that did is compared with the database."""
    seen: list[bool] = []
    real = short_term.recent_messages

    def watched(begun: Any, now: Any) -> Any:
        found = real(begun, now)
        seen.append(found is not None)
        if found is not None:
            stored = system.database.scalar(
                f"select {HISTORY}",
                user_id=begun.account.user_id,
                conversation_id=begun.conversation_id,
                user_message_id=begun.user_message_id,
            )
            keys = ("role", "text", "position")
            assert [[r[k] for k in keys] for r in found] == [[r[k] for k in keys] for r in stored]  # type: ignore[attr-defined]
        return found

    monkeypatch.setattr(context.short_term, "recent_messages", watched)
    return seen


def test_the_history_is_read_once_and_then_is_what_the_database_has(system: System, hits: list[bool]) -> None:
    conversation = system.chat("What do you think of me?").json["conversation_id"]
    for number in range(13):
        assert system.chat(f"And then, number {number}?", conversation_id=conversation).status_code == 200
    assert hits == [False] + [True] * 13


def test_a_skill_turn_in_between_is_part_of_the_history(system: System, hits: list[bool]) -> None:
    load_small_site(system.database, system.owner)
    conversation = system.chat("What do you think of me?").json["conversation_id"]
    by_skill = system.chat("Show me the trend of active members", conversation_id=conversation).json
    assert by_skill["route"]["name"] == "kpi", by_skill
    system.chat("What do you think about what you said?", conversation_id=conversation)
    assert hits == [False, True]


def test_a_message_that_is_answered_again_and_a_turn_that_failed_leave_the_history_right(
    system: System, hits: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks() -> None:
        raise ProviderError("gone")

    def use_chat(trigger: str) -> Any:
        body = {
            "id": "client-conversation",
            "trigger": trigger,
            "messages": [
                {"id": "m", "role": "user", "parts": [{"type": "text", "text": "What do you think?"}]}
            ],
        }
        headers = {**system.token(system.owner), "Accept": "application/json"}
        return system.client("chat").post("/chat", json=body, headers=headers).json

    play(monkeypatch, ["One."], ["Two."], [breaks])
    conversation = use_chat("submit-message")["conversation_id"]
    assert use_chat("regenerate-message")["text"] == "Two."
    assert system.chat("And what else?", conversation_id=conversation).status_code == 503
    model = play(monkeypatch, ["Three."])
    system.chat("And now?", conversation_id=conversation)
    texts = " ".join(m.text for m in model.requests[-1].messages)
    assert "Two." in texts
    assert "One." not in texts
    assert "And what else?" in texts
    assert hits == [False, False, False, True]


def test_deleting_a_message_takes_its_results_along_those_still_waiting_too(system: System) -> None:
    load_small_site(system.database, system.owner)
    first = system.chat("Please list my plans and tell me what you think of them").json
    message_id = uuid.UUID(first["message_id"])
    with db.user_transaction(system.other.user_id) as connection, pytest.raises(conversations.NotFound):
        conversations.delete_message(connection, system.other.user_id, message_id)
    with db.user_transaction(system.owner.user_id) as connection:
        conversations.delete_message(connection, system.owner.user_id, message_id)
    answer = system.chat("What did you show me?", conversation_id=first["conversation_id"]).json
    assert answer["recalled"]["snapshots"] == []
    system.deliver_all()
    assert (
        system.database.rows("select 1 from message_tool_results where message_id = :id", id=message_id) == []
    )


class OtherInstance:
    """A second process that serves the same conversations."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.functions.other_instance"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("RESULT "):
                result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
                return result
        raise AssertionError("the other instance ended")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


@pytest.fixture
def elsewhere(system: System) -> Iterator[OtherInstance]:
    process = OtherInstance()
    yield process
    process.close()


def test_a_turn_and_a_deletion_by_one_process_are_seen_by_the_other(
    system: System, hits: list[bool], elsewhere: OtherInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: ScriptedModel = play(monkeypatch, ["Answer of this instance."])
    token = system.issuer.customer_token(system.owner.email)
    conversation = system.chat("What do you think of me, first?").json["conversation_id"]

    def here(message: str) -> tuple[str, bool]:
        system.chat(message, conversation_id=conversation)
        return " ".join(m.text for m in model.requests[-1].messages), hits[-1]

    def there(message: str) -> tuple[str, bool, dict[str, Any]]:
        body = {"message": message, "conversation_id": conversation}
        result = elsewhere.ask(token=token, body=body)
        return " ".join(result["sent"]), result["hit"], result["answer"]

    # Both processes come to know the conversation, and use what they know.
    assert there("Second?")[1] is False
    sent, hit, answer = there("Third?")
    assert hit is True
    assert "Answer of this instance." in sent
    # A turn of the other is never missed, either way.
    sent, hit = here("Fourth?")
    assert hit is False
    assert "Third?" in sent
    assert "Answer of the other instance." in sent
    sent, hit, answer = there("Fifth?")
    assert hit is False
    assert "Fourth?" in sent
    # Nor is a deletion, by whichever process it is made.
    secret = here("The secret word is xylophone.")
    assert secret[1] is False
    assert here("Sixth?")[1] is True
    message_id = system.database.scalar("select id from messages where text like '%xylophone%'")
    elsewhere.ask(delete=str(message_id), user_id=str(system.owner.user_id))
    sent, hit = here("Seventh?")
    assert hit is False
    assert "xylophone" not in sent
    assert "Sixth?" in sent
    with db.user_transaction(system.owner.user_id) as connection:
        conversations.delete_message(connection, system.owner.user_id, uuid.UUID(answer["message_id"]))
    sent, hit, _ = there("Eighth?")
    assert hit is False
    assert "xylophone" not in sent
    assert there("Ninth?")[1] is True


def test_a_deletion_while_a_turn_runs_is_not_undone_by_it(
    system: System, hits: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, ["Answer."])
    conversation = system.chat("The secret word is xylophone.").json["conversation_id"]
    message_id = system.database.rows("select id from messages where text like '%xylophone%'")[0].id

    def delete() -> None:
        with db.user_transaction(system.owner.user_id) as connection:
            conversations.delete_message(connection, system.owner.user_id, message_id)

    play(monkeypatch, [delete, "Answer."])
    system.chat("Go on?", conversation_id=conversation)
    model = play(monkeypatch, ["Answer."])
    system.chat("And now?", conversation_id=conversation)
    assert hits == [False, True, False]
    assert "xylophone" not in " ".join(m.text for m in model.requests[-1].messages)


def test_a_hit_does_not_read_the_messages(system: System) -> None:
    conversation = system.chat("What do you think of me?").json["conversation_id"]
    loaded: list[str] = []

    def record(_role: str, statement: str) -> None:
        if "as recall," in statement:
            loaded.append(statement)

    with db.heard(record):
        system.chat("And then?", conversation_id=conversation)
        short_term._messages.drop(uuid.UUID(conversation))
        system.chat("And then?", conversation_id=conversation)
    assert ["as history" in statement for statement in loaded] == [False, True]

"""What a customer sees and changes over HTTP: their own, whole, in stable pages; and nothing of anyone else's."""

from __future__ import annotations

import json
import re
import threading
import time
import tracemalloc
import uuid
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from werkzeug.test import TestResponse

from common.config import settings
from common.customer import brain_operations, export
from common.customer.operations import operations
from common.customer.pages import read_cursor, write_cursor
from common.errors import InvalidFields, Unavailable
from local.issuer import AUDIENCE
from tests.conftest import NOW, Person
from tests.functions.conftest import System


def ask(
    system: System, method: str, path: str, *, person: Person | None = None, **options: Any
) -> TestResponse:
    headers = {**system.token(person or system.owner), **options.pop("headers", {})}
    return system.client("brain").open(path, method=method, headers=headers, **options)


def looked_up(system: System, message: str = "How many active members do I have?", **body: Any) -> Any:
    """The answer of a turn whose tool results are stored."""
    response = system.chat(message, **body)
    assert response.status_code == 200, response.text
    system.deliver_all()
    return response.json


def add_conversation(system: System, person: Person, title: str, minutes: int = 0) -> uuid.UUID:
    made = uuid.uuid4()
    system.database.run(
        """insert into conversations (id, user_id, title, created_at, last_turn_at)
           values (:id, :user_id, :title, :at, :at)""",
        id=made,
        user_id=person.user_id,
        title=title,
        at=NOW + timedelta(minutes=minutes),
    )
    return made


SOME_ID = uuid.UUID("00000000-0000-4000-8000-000000000000")
PATHS = [(o.method, o.path.replace("<id>", str(SOME_ID)).replace("<kind>", "soul")) for o in operations.table]


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_nothing_is_shown_without_a_token(system: System, method: str, path: str) -> None:
    response = system.client("brain").open(
        path, method=method, json={} if method in ("PUT", "PATCH", "POST") else None
    )
    assert response.status_code == 401
    assert response.mimetype == "application/problem+json"


class TestConversations:
    def test_a_conversation_is_shown_with_route_recall_and_calls(self, system: System) -> None:
        answer = looked_up(system)
        listed = ask(system, "GET", "/v1/conversations").json["items"]
        assert [c["id"] for c in listed] == [answer["conversation_id"]]
        assert listed[0]["messages_count"] == 2
        shown = ask(system, "GET", f"/v1/conversations/{answer['conversation_id']}").json
        question, reply = shown["messages"]
        assert (question["role"], question["text"]) == ("user", "How many active members do I have?")
        assert reply["text"] == answer["text"]
        assert reply["route"] == answer["route"]
        assert reply["provider"] == "offline"
        assert [c["tool_name"] for c in reply["tool_calls"]] == [c["tool_name"] for c in answer["tool_calls"]]
        assert all(c["snapshot_id"] for c in reply["tool_calls"])
        assert shown["sessions"][0]["id"] == answer["session_id"]

    def test_calls_show_before_their_snapshots_are_stored(self, system: System) -> None:
        answer = system.chat("How many active members do I have?").json
        reply = ask(system, "GET", f"/v1/conversations/{answer['conversation_id']}").json["messages"][1]
        assert [c["snapshot_id"] for c in reply["tool_calls"]] == [None] * len(answer["tool_calls"]) != []

    def test_earlier_messages_are_read_on_request(self, system: System) -> None:
        first = system.chat("Hello there").json
        for text in ("Hello again", "Hello once more"):
            system.chat(text, conversation_id=first["conversation_id"])
        path = f"/v1/conversations/{first['conversation_id']}"
        newest = ask(system, "GET", f"{path}?limit=4").json
        earlier = ask(system, "GET", f"{path}?limit=4&before={newest['earlier']}").json
        texts = [m["text"] for m in earlier["messages"] + newest["messages"] if m["role"] == "user"]
        assert texts == ["Hello there", "Hello again", "Hello once more"]
        assert earlier["earlier"] is None

    def test_deleting_one_takes_its_rows_along_and_says_so(self, system: System) -> None:
        answer, other = looked_up(system), looked_up(system)
        conversation, database = answer["conversation_id"], system.database
        memory = uuid.uuid4()
        database.run(
            """insert into brain_entries (id, tenant_id, user_id, collection, document, title, content, content_hash,
                                          source_message_id, created_at, updated_at)
               values (:id, :tenant, :user_id, 'memory', '', '', 'x', 'x', :message, :now, :now)""",
            id=memory,
            tenant=str(system.owner.tenant_id),
            user_id=system.owner.user_id,
            message=uuid.UUID(answer["message_id"]),
            now=NOW,
        )
        database.run(
            """insert into session_logs (tenant_id, user_id, session_id, summary, decisions, open_items, new_context,
                                         next_session_note, trigger, model, input_tokens, output_tokens, created_at)
               values (:tenant, :user_id, :session, 's', '[]', '[]', '[]', '', 'quiet', 'm', 1, 1, :now)""",
            tenant=system.owner.tenant_id,
            user_id=system.owner.user_id,
            session=uuid.UUID(answer["session_id"]),
            now=NOW,
        )
        said = ask(system, "DELETE", f"/v1/conversations/{conversation}").json
        calls = len(answer["tool_calls"])
        assert said["deleted"] == {
            "messages": 2, "sessions": 1, "snapshots": calls, "wrap_ups": 1, "pending_events": 1,
        }  # fmt: skip
        assert said["kept"] == {"memories": 1}
        for table in ("messages", "sessions", "message_tool_results", "turns", "outbox_events"):
            left = database.rows(f"select distinct conversation_id from {table}")
            assert [str(row[0]) for row in left] == [other["conversation_id"]], table
        assert database.scalar("select count(*) from session_logs") == 0
        assert database.scalar(
            "select source_message_id is null from brain_entries where id = :id", id=memory
        )
        assert ask(system, "DELETE", f"/v1/conversations/{conversation}").status_code == 404

    def test_deleting_one_while_its_results_are_being_stored_waits_and_succeeds(self, system: System) -> None:
        """The consumer holds the event and wants the conversation, the deletion holds the conversation and wants the event."""
        answer = system.chat("How many active members do I have?").json
        conversation, said = answer["conversation_id"], []
        path = f"/v1/conversations/{conversation}"
        with system.database.superuser.connect() as consumer, consumer.begin():
            consumer.execute(sa.text("select id from outbox_events for update"))
            deletion = threading.Thread(target=lambda: said.append(ask(system, "DELETE", path).status_code))
            deletion.start()
            waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
            deadline = time.monotonic() + 30
            while system.database.scalar(waiting) == 0:
                assert time.monotonic() < deadline
            consumer.execute(
                sa.text("select id from conversations where id = cast(:id as uuid) for key share"),
                {"id": conversation},
            )
        deletion.join()
        assert said == [200]
        assert system.database.scalar("select count(*) from conversations") == 0

    def test_an_end_makes_the_session_due_and_is_safe_to_repeat(self, system: System) -> None:
        answer = system.chat("Hello there").json
        system.publisher.published.clear()
        path = f"/v1/conversations/{answer['conversation_id']}/end"
        for _ in range(2):
            said = ask(system, "POST", path)
            assert said.status_code == 200
            assert said.json == {
                "conversation_id": answer["conversation_id"],
                "session_id": answer["session_id"],
                "ending": True,
            }
        events = system.database.rows(
            "select id, deliver_after <= now() as due, payload from outbox_events where type = 'session-ended'"
        )
        assert [(e.due, e.payload) for e in events] == [
            (True, {"session_id": answer["session_id"], "trigger": "client"})
        ]
        assert {e.id for e in system.publisher.published} == {events[0].id}

    def test_an_end_without_an_open_session_does_nothing(self, system: System) -> None:
        answer = system.chat("Hello there").json
        system.database.run("update sessions set ended_at = now()")
        system.database.run("delete from outbox_events")
        said = ask(system, "POST", f"/v1/conversations/{answer['conversation_id']}/end").json
        assert said["ending"] is False
        assert system.database.scalar("select count(*) from outbox_events") == 0

    def test_an_end_is_kept_when_nothing_can_be_published(self, system: System) -> None:
        answer = system.chat("Hello there").json
        system.publisher.fails = True
        assert ask(system, "POST", f"/v1/conversations/{answer['conversation_id']}/end").status_code == 200
        assert system.database.scalar("select deliver_after <= now() from outbox_events")


class TestPages:
    def test_pages_stay_stable_while_conversations_are_added(self, system: System) -> None:
        # Some share a moment: the id decides between them.
        made = [add_conversation(system, system.owner, f"c{i}", minutes=i // 3) for i in range(8)]
        add_conversation(system, system.other, "not yours")
        seen: list[str] = []
        cursor = ""
        for step in range(10):
            page = ask(system, "GET", f"/v1/conversations?limit=3{cursor}").json
            seen += [c["id"] for c in page["items"]]
            add_conversation(system, system.owner, "newer", minutes=100 + step)
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        assert sorted(seen) == sorted(map(str, made))

    @pytest.mark.parametrize(
        "cursor", ["x", "%00", "MjAyNi0wNS0xMg", "12-34", f"-1-{SOME_ID.hex}", f"{10**16}-{SOME_ID.hex}"]
    )
    def test_a_cursor_that_is_none_of_ours_is_refused(self, system: System, cursor: str) -> None:
        assert ask(system, "GET", f"/v1/conversations?cursor={cursor}").status_code == 422

    @pytest.mark.parametrize("limit", ["0", "101", "x", "-1", "1e99"])
    def test_a_page_has_its_bounds(self, system: System, limit: str) -> None:
        assert ask(system, "GET", f"/v1/snapshots?limit={limit}").status_code == 422

    def test_a_cursor_keeps_microseconds_and_zone(self) -> None:
        key = (NOW.replace(microsecond=123456), uuid.uuid4())
        assert read_cursor(write_cursor(*key)) == key
        with pytest.raises(InvalidFields):
            read_cursor("é")


class TestSnapshots:
    def test_the_whole_result_is_shown(self, system: System) -> None:
        answer = looked_up(system)
        listed = ask(system, "GET", "/v1/snapshots").json["items"]
        assert [s["tool_name"] for s in listed] == [c["tool_name"] for c in answer["tool_calls"]]
        assert "tool_output" not in listed[0]
        assert re.search(r"latest \d+ member", listed[0]["summary"])
        whole = ask(system, "GET", f"/v1/snapshots/{listed[0]['id']}").json
        assert whole["tool_output"] == answer["tool_calls"][0]["output"]
        assert whole["conversation_id"] == answer["conversation_id"]

    def test_they_can_be_narrowed_down(self, system: System) -> None:
        one, two = looked_up(system), looked_up(system, "Show me recent members")
        of_one = ask(system, "GET", f"/v1/snapshots?conversation_id={one['conversation_id']}").json["items"]
        assert {s["conversation_id"] for s in of_one} == {one["conversation_id"]}
        name = two["tool_calls"][0]["tool_name"]
        of_tool = ask(system, "GET", f"/v1/snapshots?tool_name={name}").json["items"]
        assert {s["tool_name"] for s in of_tool} == {name}
        assert ask(system, "GET", "/v1/snapshots?tool_name=%00").json["items"] == []

    def test_a_deleted_one_is_gone_and_caches_are_told(self, system: System) -> None:
        looked_up(system)
        snapshot = ask(system, "GET", "/v1/snapshots").json["items"][0]["id"]
        before = system.database.scalar("select version from conversations")
        response = ask(system, "DELETE", f"/v1/snapshots/{snapshot}")
        assert (response.status_code, response.data) == (204, b"")
        assert ask(system, "GET", f"/v1/snapshots/{snapshot}").status_code == 404
        assert system.database.scalar("select version from conversations") == before + 1


class TestFeedback:
    def test_a_thumb_is_stored_changed_and_taken_back(self, system: System) -> None:
        answer = system.chat("Hello there").json
        path = f"/v1/messages/{answer['message_id']}/feedback"
        for helpful in (True, True, False, None):
            response = ask(system, "PUT", path, json={"helpful": helpful})
            assert response.json == {"message_id": answer["message_id"], "helpful": helpful}
            shown = ask(system, "GET", f"/v1/conversations/{answer['conversation_id']}").json
            assert shown["messages"][1]["helpful"] is helpful
        assert system.database.scalar("select count(*) from message_feedback") == 0

    def test_only_answers_are_judged(self, system: System) -> None:
        system.chat("Hello there")
        question = system.database.scalar("select id from messages where role = 'user'")
        assert (
            ask(system, "PUT", f"/v1/messages/{question}/feedback", json={"helpful": True}).status_code == 404
        )

    @pytest.mark.parametrize(
        "body", [{}, {"helpful": "very"}, {"helpful": 1}, {"helpful": True, "user_id": "x"}]
    )
    def test_a_wrong_body_is_named(self, system: System, body: dict[str, Any]) -> None:
        answer = system.chat("Hello there").json
        response = ask(system, "PUT", f"/v1/messages/{answer['message_id']}/feedback", json=body)
        assert response.status_code == 422
        assert response.json["fields"]


class TestWhatIsNotYours:
    def test_it_is_404_and_stays_as_it_is(self, system: System) -> None:
        answer = looked_up(system)
        snapshot = ask(system, "GET", "/v1/snapshots").json["items"][0]["id"]
        conversation = f"/v1/conversations/{answer['conversation_id']}"
        before = system.database.rows("select count(*), max(version) from conversations")
        for method, path, body in [
            ("GET", conversation, None),
            ("DELETE", conversation, None),
            ("POST", f"{conversation}/end", {}),
            ("GET", f"/v1/snapshots/{snapshot}", None),
            ("DELETE", f"/v1/snapshots/{snapshot}", None),
            ("PUT", f"/v1/messages/{answer['message_id']}/feedback", {"helpful": True}),
        ]:
            theirs = ask(system, method, path, person=system.other, json=body)
            nobodys = ask(system, method, path.replace(path.split("/")[3], str(uuid.uuid4())), json=body)
            assert theirs.status_code == nobodys.status_code == 404, path
            assert theirs.json == nobodys.json, path
        assert system.database.rows("select count(*), max(version) from conversations") == before
        for path in ("/v1/conversations", "/v1/snapshots"):
            assert ask(system, "GET", path, person=system.other).json["items"] == []

    @pytest.mark.parametrize("wrong", ["x", "%00", "1", "..", "0" * 400])
    def test_what_is_no_id_is_404_too(self, system: System, wrong: str) -> None:
        for path in ("/v1/conversations", "/v1/snapshots"):
            assert ask(system, "GET", f"{path}/{wrong}").status_code in (404, 405)


class TestUsage:
    def test_it_is_counted_against_the_tier(self, system: System) -> None:
        system.chat("Hello there")
        usage = ask(system, "GET", "/v1/usage").json
        assert usage["tier"] == "pro"
        assert (usage["turns_today"]["used"], usage["turns_today"]["limit"]) == (1, 400)
        assert usage["cost_usd_this_month"]["limit"] == 12
        assert usage["memories"] == {"used": 0, "limit": 15, "starts_anew_at": None}
        assert usage["turns_today"]["starts_anew_at"] <= usage["wrap_ups_this_month"]["starts_anew_at"]
        nothing = ask(system, "GET", "/v1/usage", person=system.other).json
        assert nothing["turns_today"]["used"] == 0


class TestExport:
    def test_it_names_every_table_with_a_users_rows(self, system: System) -> None:
        owned = system.database.rows("""
            select distinct table_name from information_schema.columns
            where table_schema = 'public' and column_name in ('user_id', 'tenant_id')
        """)
        named = {table.name for table in export.TABLES}
        assert named == {row[0] for row in owned} | {"tenants", "users"}

    def test_it_holds_all_that_is_the_users_and_nothing_else(self, system: System) -> None:
        looked_up(system)
        looked_up(system, "Show me recent members")
        system.chat("A secret of the other", person=system.other)
        response = ask(system, "GET", "/v1/me/export")
        assert "attachment" in response.headers["Content-Disposition"]
        assert "A secret of the other" not in response.text
        document = response.json
        assert document["complete"] is True
        for table in export.TABLES:
            owner = table.owner.replace("user_id = :user_id", "user_id = cast(:user_id as uuid)")
            values = {
                k: v
                for k, v in (("user_id", system.owner.user_id), ("tenant_id", system.owner.tenant_id))
                if f":{k}" in table.owner
            }
            count = system.database.scalar(f"select count(*) from {table.name} where {owner}", **values)
            assert len(document["tables"][table.name]) == count, table.name
        assert len(document["tables"]["message_tool_results"]) == 2
        assert document["tables"]["users"][0]["email"] == system.owner.email

    def test_pages_join_without_loss(self, system: System, monkeypatch: pytest.MonkeyPatch) -> None:
        for i in range(7):
            add_conversation(system, system.owner, f"c{i}")
        whole = ask(system, "GET", "/v1/me/export").json["tables"]
        small = tuple(export.Table(t.name, 3, t.owner, t.key, t.hidden) for t in export.TABLES)
        monkeypatch.setattr(export, "TABLES", small)
        again = ask(system, "GET", "/v1/me/export").json["tables"]
        assert [r["requests"] for r in (*whole.pop("request_counts"), *again.pop("request_counts"))] in (
            [1, 2],
            [1, 1],
        )
        assert again == whole
        assert len(whole["conversations"]) == 7

    def test_it_is_made_page_by_page(self, system: System, monkeypatch: pytest.MonkeyPatch) -> None:
        for i in range(6):
            add_conversation(system, system.owner, f"c{i}")
        small = tuple(export.Table(t.name, 2, t.owner, t.key, t.hidden) for t in export.TABLES)
        monkeypatch.setattr(export, "TABLES", small)
        response = ask(system, "GET", "/v1/me/export", buffered=False)
        pieces = [piece.decode() for piece in response.iter_encoded()]
        assert max(piece.count('"title"') for piece in pieces) == 2
        assert json.loads("".join(pieces))["complete"] is True

    @pytest.mark.slow
    def test_a_hundred_megabytes_are_written_in_bounded_memory(self, system: System) -> None:
        looked_up(system)
        system.database.run("""
            insert into message_tool_results (user_id, message_id, conversation_id, site_id, tool_use_id, tool_name,
                tool_input, tool_output, signals, arguments_hash, position, created_at)
            select user_id, message_id, conversation_id, site_id, 'more' || n, tool_name, tool_input,
                   jsonb_build_object('text', repeat(md5(cast(n as text)), 7000)), signals, arguments_hash, n, created_at
            from message_tool_results, generate_series(1, 500) n
        """)
        size, end = 0, b""
        tracemalloc.start()
        try:
            for piece in ask(system, "GET", "/v1/me/export", buffered=False).iter_encoded():
                size += len(piece)
                end = (end + piece)[-40:]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert size > 110_000_000
        assert end.endswith(b'"complete":true}')
        assert peak < 40_000_000


class TestConsole:
    def test_the_page_and_its_parts_come_with_type_and_policy(self, system: System) -> None:
        client = system.client("brain")
        for path, kind in (("/", "text/html"), ("/console/app.js", "text/javascript"),
                           ("/console/style.css", "text/css"), ("/console/icon.svg", "image/svg+xml")):  # fmt: skip
            response = client.get(path)
            assert (response.status_code, response.mimetype) == (200, kind)
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'self'" in policy
            assert "unsafe" not in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert client.get("/console/sign-in.json").json == {"sign_in": None}
        again = client.get(
            "/console/app.js", headers={"If-None-Match": client.get("/console/app.js").headers["ETag"]}
        )
        assert again.status_code == 304

    def test_the_page_may_talk_to_the_issuer_that_it_is_told_of(
        self, system: System, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MEMBERINTEL_OIDC_AUTHORIZATION_URL", "https://login.example.com/authorize")
        monkeypatch.setenv("MEMBERINTEL_OIDC_TOKEN_URL", "https://tokens.example.com/oauth/token")
        settings.cache_clear()
        client = system.client("brain")
        assert client.get("/console/sign-in.json").json["sign_in"] == {
            "authorization_url": "https://login.example.com/authorize",
            "token_url": "https://tokens.example.com/oauth/token",
            "client_id": AUDIENCE,
        }
        policy = client.get("/").headers["Content-Security-Policy"]
        assert "connect-src 'self' https://tokens.example.com;" in policy

    @pytest.mark.parametrize(
        "path",
        [
            "/console/", "/console/nothing.js", "/console/main.py", "/console/../main.py", "/console/..%2fmain.py",
            "/console/%2e%2e/main.py", "/console/..", "/console/.", "/console//etc/passwd", "/console/%2fetc%2fpasswd",
            "/console/app.js%00.css", "/console/..\\main.py", "/etc/passwd",
        ],
    )  # fmt: skip
    def test_nothing_outside_its_folder_is_served(self, system: System, path: str) -> None:
        assert system.client("brain").get(path).status_code == 404


def test_the_document_is_public_and_describes_every_path(system: System) -> None:
    described = system.client("brain").get("/openapi.json").json
    assert described["openapi"] == "3.1.0"
    served = {(o.method.lower(), o.path.replace("<", "{").replace(">", "}")) for o in operations.table}
    assert {(m, path) for path, methods in described["paths"].items() for m in methods} == served


def add_wrap_up(system: System, answer: Any) -> str:
    owner = system.owner
    made = uuid.uuid4()
    decision = {"text": "Gold costs 35 dollars.", "message_ids": [answer["message_id"]]}
    system.database.run(
        """insert into session_logs (id, tenant_id, user_id, session_id, summary, decisions, open_items, new_context,
                                     next_session_note, trigger, model, input_tokens, output_tokens, created_at)
           values (:id, :tenant, :user_id, :session, 'They talked.', cast(:decisions as jsonb), '[]', '[]', '', 'quiet', 'm',
                   1, 1, :now)""",
        id=made,
        tenant=owner.tenant_id,
        user_id=owner.user_id,
        session=uuid.UUID(answer["session_id"]),
        decisions=json.dumps([decision]),
        now=NOW,
    )
    return str(made)


class TestWrapUps:
    def test_one_is_shown_with_what_it_rests_on(self, system: System) -> None:
        answer = system.chat("Hello there").json
        wrap_up = add_wrap_up(system, answer)
        listed = ask(system, "GET", "/v1/session-logs").json
        assert [w["id"] for w in listed["items"]] == [wrap_up]
        shown = ask(system, "GET", f"/v1/session-logs/{wrap_up}")
        assert shown.headers["ETag"] == '"1"'
        assert shown.json["conversation_id"] == answer["conversation_id"]
        assert shown.json["decisions"][0]["message_ids"] == [answer["message_id"]]

    def test_an_edit_builds_on_what_was_read(self, system: System) -> None:
        path = f"/v1/session-logs/{add_wrap_up(system, system.chat('Hello there').json)}"
        first = ask(system, "PATCH", path, json={"summary": "Corrected."}, headers={"If-Match": '"1"'})
        assert (first.status_code, first.json["summary"], first.headers["ETag"]) == (200, "Corrected.", '"2"')
        for stale in ('"1"', '"x"', "nonsense", '"99999999999999999999"'):
            refused = ask(system, "PATCH", path, json={"summary": "Lost."}, headers={"If-Match": stale})
            assert (refused.status_code, refused.json["type"]) == (
                412,
                "urn:memberintel:problem:stale-version",
            )
        missing = f"/v1/session-logs/{SOME_ID}"
        for nothing in ('"1"', "nonsense"):
            refused = ask(system, "PATCH", missing, json={"summary": "x"}, headers={"If-Match": nothing})
            assert refused.status_code == 404, nothing
        for any_version in ({}, {"If-Match": "*"}, {"If-Match": 'W/"4"'}):
            accepted = ask(system, "PATCH", path, json={"next_session_note": "n"}, headers=any_version)
            assert accepted.status_code == 200, any_version
            assert accepted.json["summary"] == "Corrected."

    def test_a_deleted_one_is_gone(self, system: System) -> None:
        path = f"/v1/session-logs/{add_wrap_up(system, system.chat('Hello there').json)}"
        assert ask(system, "DELETE", path).status_code == 204
        assert ask(system, "GET", path).status_code == 404
        assert system.database.scalar("select wrap_up from sessions") == "deleted"

    def test_nobody_else_sees_edits_or_deletes_it(self, system: System) -> None:
        path = f"/v1/session-logs/{add_wrap_up(system, system.chat('Hello there').json)}"
        for method, body in (("GET", None), ("PATCH", {"summary": "Mine now."}), ("DELETE", None)):
            assert ask(system, method, path, person=system.other, json=body).status_code == 404
        assert ask(system, "GET", path).json["summary"] == "They talked."

    @pytest.mark.parametrize(
        "body",
        [
            {"sumary": "x"},
            {"summary": ""},
            {"summary": "\u200b "},
            {"decisions": [{"text": ""}]},
            {"decisions": "x"},
            {},
        ],
    )
    def test_a_wrong_edit_is_named(self, system: System, body: dict[str, Any]) -> None:
        path = f"/v1/session-logs/{add_wrap_up(system, system.chat('Hello there').json)}"
        assert ask(system, "PATCH", path, json=body).status_code == 422


class TestDocuments:
    def test_one_that_was_never_written_is_empty_at_version_0(self, system: System) -> None:
        listed = ask(system, "GET", "/v1/brain/documents").json["items"]
        assert [(d["kind"], d["version"]) for d in listed] == [("soul", 0), ("bible", 0)]
        shown = ask(system, "GET", "/v1/brain/documents/soul")
        assert (shown.json["content"], shown.headers["ETag"]) == ("", '"0"')

    def test_edits_keep_revisions_which_can_be_restored(self, system: System) -> None:
        path = "/v1/brain/documents/bible"
        for version, text in enumerate(["one", "two", "three"]):
            written = ask(system, "PUT", path, json={"content": text}, headers={"If-Match": f'"{version}"'})
            assert (written.status_code, written.headers["ETag"]) == (200, f'"{version + 1}"')
        assert ask(system, "PUT", path, json={"content": "x"}, headers={"If-Match": '"2"'}).status_code == 412
        first = ask(system, "GET", f"{path}/revisions?limit=1").json
        second = ask(system, "GET", f"{path}/revisions?limit=1&cursor={first['next']}").json
        assert [r["content"] for r in first["items"] + second["items"]] == ["two", "one"]
        assert second["next"] is None
        restored = ask(
            system, "POST", f"{path}/restore", json={"version": 1}, headers={"If-Match": '"3"'}
        ).json
        assert (restored["content"], restored["version"], restored["author"]) == ("one", 4, "customer")
        assert ask(system, "POST", f"{path}/restore", json={"version": 2.0}).json["content"] == "two"
        assert ask(system, "POST", f"{path}/restore", json={"version": 2.5}).status_code == 422
        assert ask(system, "POST", f"{path}/restore", json={"version": 9}).status_code == 404
        assert ask(system, "GET", f"{path}/revisions?cursor=x").status_code == 422

    def test_heartbeat_is_read_only(self, system: System) -> None:
        refused = ask(system, "PUT", "/v1/brain/documents/heartbeat", json={"content": "x"})
        assert refused.status_code == 403
        assert "cannot be edited" in refused.json["detail"]
        assert ask(system, "PUT", "/v1/brain/documents/other", json={"content": "x"}).status_code == 404

    def test_they_are_part_of_pro(self, system: System) -> None:
        system.database.run("update tenants set tier = 'free' where id = :id", id=system.owner.tenant_id)
        for operation in operations.table:
            if operation.path.startswith("/v1/brain/documents"):
                body = {"content": "x"} if operation.method == "PUT" else {"version": 1}
                path = operation.path.replace("<kind>", "soul")
                response = ask(
                    system, operation.method, path, json=None if operation.method == "GET" else body
                )
                assert (response.status_code, "Pro plan" in response.json["detail"]) == (403, True), path
        assert ask(system, "GET", "/v1/brain/memories").status_code == 200


class TestMemories:
    def test_one_is_added_changed_and_forgotten(self, system: System) -> None:
        added = ask(system, "POST", "/v1/brain/memories", json={"content": "Likes tea"})
        assert (added.status_code, added.headers["ETag"]) == (201, '"1"')
        path = f"/v1/brain/memories/{added.json['id']}"
        changed = ask(system, "PATCH", path, json={"content": "Likes coffee"}, headers={"If-Match": '"1"'})
        assert (changed.json["content"], changed.headers["ETag"]) == ("Likes coffee", '"2"')
        assert (
            ask(system, "PATCH", path, json={"content": "x"}, headers={"If-Match": '"1"'}).status_code == 412
        )
        assert ask(system, "DELETE", path, headers={"If-Match": '"1"'}).status_code == 412
        assert ask(system, "DELETE", path, headers={"If-Match": '"2"'}).status_code == 204
        assert ask(system, "GET", "/v1/brain/memories").json["items"] == []
        assert ask(system, "GET", path).status_code == 404

    def test_the_tiers_limit_is_told(self, system: System) -> None:
        system.database.run("update tenants set tier = 'free' where id = :id", id=system.owner.tenant_id)
        facts = ["Sells bread", "Opens on Tuesday", "Lives in Cork", "Has two dogs", "Hates spam"]
        for fact in facts:
            assert ask(system, "POST", "/v1/brain/memories", json={"content": fact}).status_code == 201
        full = ask(system, "POST", "/v1/brain/memories", json={"content": "Plays the violin"})
        assert full.status_code == 429
        assert "5 entries" in full.json["detail"]
        pages = [ask(system, "GET", "/v1/brain/memories?limit=3").json]
        pages.append(ask(system, "GET", f"/v1/brain/memories?limit=3&cursor={pages[0]['next']}").json)
        assert [m["content"] for page in pages for m in page["items"]] == facts

    def test_nobody_else_sees_changes_or_forgets_it(self, system: System) -> None:
        made = ask(system, "POST", "/v1/brain/memories", json={"content": "Likes tea"}).json["id"]
        path = f"/v1/brain/memories/{made}"
        for method, body in (("GET", None), ("PATCH", {"content": "x"}), ("DELETE", None)):
            assert ask(system, method, path, person=system.other, json=body).status_code == 404
        assert ask(system, "GET", path).json["content"] == "Likes tea"

    def test_one_is_kept_when_it_cannot_be_embedded(
        self, system: System, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Away:
            name = "away"

            def embed(self, texts: Any, *, kind: str) -> Any:
                raise Unavailable()

        monkeypatch.setattr(brain_operations, "embedder", lambda _config: Away())
        assert ask(system, "POST", "/v1/brain/memories", json={"content": "Likes tea"}).status_code == 201
        assert system.database.scalar("select embedding is null from brain_entries")

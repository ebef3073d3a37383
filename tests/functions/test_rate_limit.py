"""So many requests a minute a user may make, over all instances; and what the logs of a whole run hold of a customer: nothing."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from werkzeug.test import TestResponse

from common import clock, http
from common.config import settings
from tests.conftest import Person
from tests.functions.conftest import System
from tests.functions.scripted import play
from tests.functions.site import load_small_site
from tests.unit.test_masking import LETTERS, SECRETS

AT = datetime.now(UTC).replace(second=40, microsecond=0)


@pytest.fixture
def limited(system: System, monkeypatch: pytest.MonkeyPatch) -> System:
    """Three requests a minute, and a clock that stands."""
    monkeypatch.setenv("MEMBERINTEL_REQUESTS_PER_MINUTE", "3")
    settings.cache_clear()
    at(monkeypatch, AT)
    return system


def at(monkeypatch: pytest.MonkeyPatch, moment: datetime) -> None:
    monkeypatch.setattr(clock, "now", lambda: moment)


def usage(system: System, person: Person | None = None) -> TestResponse:
    return system.client("brain").get("/v1/usage", headers=system.token(person or system.owner))


def test_beyond_the_limit_it_is_429_until_the_next_minute(
    limited: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [usage(limited).status_code for _ in range(4)] == [200, 200, 200, 429]
    refused = usage(limited)
    assert refused.json["type"] == "urn:memberintel:problem:too-many-requests"
    assert refused.json["detail"] == "You may make 3 requests a minute."
    assert refused.headers["Retry-After"] == "20"
    assert usage(limited, limited.other).status_code == 200
    at(monkeypatch, AT + timedelta(seconds=20))
    assert [usage(limited).status_code for _ in range(4)] == [200, 200, 200, 429]


def test_chat_and_the_other_functions_count_together(limited: System) -> None:
    assert limited.chat("Hello").status_code == 200
    assert usage(limited).status_code == 200
    assert limited.chat("Hello").status_code == 200
    assert limited.chat("Hello").status_code == usage(limited).status_code == 429
    assert limited.database.scalar("select count(*) from messages where role = 'user'") == 2
    assert limited.database.scalar("select used from usage_counters where counter = 'turns'") == 2


def test_a_turn_that_is_asked_for_again_counts_once_each_time(limited: System) -> None:
    assert [limited.chat("Hello", turn_id="t-1").status_code for _ in range(4)] == [200, 200, 200, 429]


def test_requests_that_are_refused_count(limited: System) -> None:
    headers = limited.token(limited.owner)
    brain = limited.client("brain")
    unknown = "/v1/conversations/00000000-0000-4000-8000-000000000000"
    statuses = [brain.get(unknown, headers=headers).status_code for _ in range(4)]
    assert statuses == [404, 404, 404, 429]
    assert brain.post("/v1/brain/memories", json={}, headers=headers).status_code == 429


def test_so_many_at_once_are_let_in_and_no_more(limited: System) -> None:
    statuses: list[int] = []
    threads = [threading.Thread(target=lambda: statuses.append(usage(limited).status_code)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * 3 + [429] * 5


def test_a_user_has_one_row_however_long_they_stay(limited: System, monkeypatch: pytest.MonkeyPatch) -> None:
    for minute in range(5):
        at(monkeypatch, AT + timedelta(minutes=minute))
        assert usage(limited).status_code == 200
    assert [tuple(r) for r in limited.database.rows("select requests from request_counts")] == [(1,)]


def test_the_edge_limits_body_and_depth() -> None:
    assert http.MAX_BODY_BYTES == 64 * 1024
    assert http.MAX_JSON_DEPTH == 64


def test_the_console_runs_only_what_it_came_with(system: System) -> None:
    policy = system.client("brain").get("/").headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    for header in ("X-Content-Type-Options", "X-Frame-Options", "Strict-Transport-Security"):
        assert header in system.client("brain").get("/v1/usage").headers


# -- the logs ------------------------------------------------------------------------------------------------------------------------

CANARY = "kanarienvogel-7301"


def test_the_logs_of_a_whole_run_hold_nothing_of_the_customers(
    system: System, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    load_small_site(system.database, system.owner)
    key = SECRETS["a model vendor's key"]
    text = f"{CANARY}: my key is {key}. We decided to raise the price to 129 dollars in June and to tell every member two weeks before."
    tokens = [system.issuer.customer_token(system.owner.email), system.issuer.internal_token()]

    def brain(method: str, path: str, body: Any = None) -> int:
        headers = system.token(system.owner)
        return system.client("brain").open(path, method=method, json=body, headers=headers).status_code

    answer = system.chat(text).json
    system.chat(f"How many active members do I have? {CANARY}", conversation_id=answer["conversation_id"])
    brain("POST", "/v1/brain/memories", {"content": text})
    brain("PUT", "/v1/brain/documents/soul", {"content": text, CANARY: 1})
    brain("PUT", f"/v1/brain/documents/{CANARY}", {"content": text})
    brain("GET", f"/v1/conversations/{CANARY}?cursor={CANARY}")
    brain("POST", f"/v1/conversations/{answer['conversation_id']}/end")
    system.deliver_all()
    # What fails, and quotes what it failed on.
    monkeypatch.setattr("common.advisor.turn.clean_json", lambda _: 1 / 0 if CANARY else None)
    play(monkeypatch, [lambda: (_ for _ in ()).throw(RuntimeError(text))])
    system.chat(text)
    system.chat(text, turn_id=CANARY + "\x00")
    system.client("chat").post("/chat", data=f'{{"message": "{CANARY}', headers=system.token(system.owner))
    brain("DELETE", "/v1/me")
    system.internal("nightly_refresh", {})
    out, err = capfd.readouterr()
    assert '"event": "turns_total"' in out
    assert '"severity": "ERROR"' in out
    ids = [
        str(system.owner.user_id),
        str(system.owner.tenant_id),
        answer["conversation_id"],
        answer["turn_id"],
    ]
    for secret in (CANARY, key, LETTERS[:20], system.owner.email, "129 dollars", *tokens, *ids):
        assert secret not in out + err, secret

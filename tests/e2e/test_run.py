"""`memberintel run` and the commands beside it, as a newcomer uses them."""

from __future__ import annotations

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from local import postgres
from tests.e2e.conftest import Running, command, start

OWNER, SECOND = "owner@demo.example", "second@demo.example"


def query(running: Running, sql: str, **values: Any) -> list[Any]:
    with postgres.server(running.data) as server:
        engine = sa.create_engine(server.url(), poolclass=sa.NullPool)
        with engine.connect() as connection:
            return list(connection.execute(sa.text(sql), values))


def until(check: Any, seconds: float = 30) -> Any:
    """Poll for what another process does; a limit, not a measurement."""
    deadline = time.monotonic() + seconds
    while not (value := check()):
        assert time.monotonic() < deadline, "never came"
        time.sleep(0.1)
    return value


def test_the_console_is_served_and_signed_in(running: Running) -> None:
    address, _, fragment = running.console.partition("#")
    assert fragment.startswith("token=")
    status, page = running.call(
        "GET", address.removeprefix(f"http://127.0.0.1:{running.port}"), accept="text/html"
    )
    assert status == 200
    assert "<html" in page


def test_the_demo_owner_is_answered_with_numbers_that_sql_confirms(running: Running) -> None:
    answer = running.chat("How many active members do I have?", token=running.token(OWNER))
    (active,) = query(
        running,
        "select count(distinct s.member_id) from subscriptions s join users u on u.id = s.user_id join sites i on i.id = s.site_id"
        " where u.email = :email and s.started_at <= i.data_as_of and (s.ended_at is null or s.ended_at > i.data_as_of)",
        email=OWNER,
    )[0]
    assert active > 100
    assert str(active) in answer["text"].replace(",", ""), answer["text"]
    assert answer["tool_calls"]

    plans = running.chat("list my plans", token=running.token(OWNER))
    names = [
        row[0]
        for row in query(
            running,
            "select m.name from memberships m join users u on u.id = m.user_id where u.email = :e",
            e=OWNER,
        )
    ]
    assert len(names) == 3
    assert all(name in plans["text"] for name in names), plans["text"]


def test_recall_works_in_the_conversation_and_in_another(running: Running) -> None:
    token = running.token(OWNER)
    first = running.chat("Please list my plans and give me advice on them", token=token)
    second = running.chat(
        "What plans did you show me?", token=token, conversation_id=first["conversation_id"]
    )
    assert "as of" in second["text"].lower()
    assert second["recalled"]["snapshots"]
    until(
        lambda: query(
            running, "select 1 from message_tool_results where message_id = :id", id=first["message_id"]
        )
    )
    block = running.command("recall", "--conversation", first["conversation_id"]).stdout
    assert block.startswith("Previously fetched (this conversation, snapshots — not live data):")
    assert second["recalled"]["snapshots"][0] in block
    other = running.chat("Show me the plans you showed me before", token=token)
    assert other["conversation_id"] != first["conversation_id"]
    assert [c["tool_name"] for c in other["tool_calls"]] == ["recall_prior_tool_result"], other
    assert "as of" in other["text"].lower()


def test_explain_tells_what_made_an_answer(running: Running) -> None:
    turn = running.chat("Hello", token=running.token(OWNER))["turn_id"]
    explained = running.command("explain", "--turn", turn).stdout
    for word in ('"route"', '"sections"', '"base"', '"charges"', '"candidates"'):
        assert word in explained
    assert query(running, "select 1 from access_log where action = 'explain'")


def test_a_stranger_gets_nothing(running: Running) -> None:
    conversation = running.chat("Hello", token=running.token(OWNER))["conversation_id"]
    body = {"message": "x", "conversation_id": conversation}
    assert running.call("POST", "/chat", body, token=running.token(SECOND))[0] == 404
    assert running.call("POST", "/chat", body)[0] == 401
    assert running.call("POST", "/internal/relay_events", {})[0] == 401
    assert running.call("POST", "/internal/relay_events", {}, token=running.token(OWNER))[0] == 401


def test_the_scheduled_functions_can_be_triggered(running: Running) -> None:
    done = running.command("trigger", "relay_events", "--port", str(running.port))
    assert '"published"' in done.stdout


def test_a_query_that_names_a_plan_is_routed_by_the_sites_plans(running: Running) -> None:
    (plan,) = query(
        running,
        "select m.name from memberships m join sites s on s.id = m.site_id where s.name = 'Demo Club' limit 1",
    )[0]
    asked = f"How many members does {plan} have?"
    with_site = json.loads(running.command("route", asked, "--site", "Demo Club").stdout)
    without = json.loads(running.command("route", asked).stdout)
    assert any(plan.lower() in reason.lower() for reason in with_site["reasons"]), with_site
    assert without["route"] == "advisor"
    nowhere = running.command("route", asked, "--site", "No Such Club", check=False)
    assert (nowhere.returncode, nowhere.stderr.count("\n")) == (1, 1)


def test_a_second_start_on_the_same_data_is_refused_with_one_line(running: Running) -> None:
    done = running.command("run", "--port", "1", check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == f"memberintel run: The system runs already on the data in {running.data}."


def test_a_new_customer_can_be_added(running: Running) -> None:
    tenant = running.command("tenant", "add", "New Club", "--tier", "pro").stdout.strip()
    running.command("user", "add", "new@club.example", "--tenant", tenant)
    assert running.chat("Hello", token=running.token("new@club.example"))["status"] == "complete"
    again = running.command("user", "add", "new@club.example", "--tenant", tenant, check=False)
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    running.command("set-tier", tenant, "free")


def test_the_data_outlives_a_kill_and_a_restart(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    first = start(tmp_path)
    token = first.token(OWNER)
    said = first.chat("Hello", token=token)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    second = start(tmp_path)
    try:
        again = second.chat("Hello again", token=token, conversation_id=said["conversation_id"])
        assert again["conversation_id"] == said["conversation_id"]
    finally:
        printed = second.stop()
    assert "Traceback" not in printed
    assert "owner@demo.example" not in printed
    assert not (tmp_path / "postgres" / "postmaster.pid").exists(), "the last to leave stops the server"
    fresh = start(tmp_path, "--fresh")
    try:
        assert query(fresh, "select count(*) from conversations")[0][0] == 0
    finally:
        fresh.stop()


@pytest.mark.parametrize("arguments", [["dead-letters", "list"], ["migrate"], ["database-url"]])
def test_commands_work_without_a_running_system(tmp_path: Path, arguments: list[str]) -> None:
    tmp_path.chmod(0o755)
    assert command(tmp_path, *arguments).returncode == 0


def test_commands_at_once_on_a_new_folder_all_work(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda n: command(tmp_path, "tenant", "add", f"Club {n}"), range(3)))
    assert len({one.stdout for one in done}) == 3

"""The process is killed at each step between receiving a request and the consumer's commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.functions.conftest import System
from tests.functions.scripted import play
from tests.functions.site import load_small_site
from tests.functions.test_nothing_is_lost import LIST_PLANS, said, snapshots, turns, waiting

ROOT = Path(__file__).parents[2]
QUESTION = ("user", "plans?", "complete")
ANSWER = ("assistant", "You have two plans.", "complete")

# Step -> messages, turns and tool-result events right after the kill, and whether the answer was committed.
STEPS = {
    "received": ([], [], 0, False),
    "before_the_first_commit": ([], [], 0, False),
    "begun": ([QUESTION], ["running"], 0, False),
    "tool_ran": ([QUESTION], ["running"], 0, False),
    "mid_stream": ([QUESTION], ["running"], 0, False),
    "before_the_last_statement": ([QUESTION], ["running"], 0, False),
    "before_the_last_commit": ([QUESTION], ["running"], 0, False),
    "before_publishing": ([QUESTION, ANSWER], ["complete"], 1, True),
    "consumer_before_its_effect": ([QUESTION, ANSWER], ["complete"], 1, True),
    "consumer_done": ([QUESTION, ANSWER], ["complete"], 0, True),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_loses_and_doubles_nothing(system: System, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    load_small_site(system.database, system.owner)
    kill(system, step)
    messages, statuses, events, answered = STEPS[step]
    assert said(system) == messages
    assert [status for status, _ in turns(system)] == statuses
    assert waiting(system) == events

    # The lease runs out, the minute's relay comes, and the client sends its turn again.
    system.database.run("update turns set lease_until = now() - interval '1 second' where status = 'running'")
    system.database.run("update outbox_events set created_at = created_at - interval '1 minute'")
    system.internal("relay_events", {})
    system.deliver_all()
    play(monkeypatch, [LIST_PLANS], ["You have ", "two plans."])
    assert system.chat("plans?", turn_id="t1").json["text"] == "You have two plans."
    system.deliver_all()
    assert said(system) == [QUESTION, ANSWER]
    assert [status for status, _ in turns(system)] == ["complete"]
    assert (snapshots(system), waiting(system)) == (1, 0)
    lost = system.database.scalar("select count(*) from usage_charges where state = 'reserved'")
    assert lost == (1 if statuses == ["running"] else 0), (
        "a call whose process died stays reserved until it expires"
    )
    assert answered or system.database.scalar("select used from usage_counters where counter = 'turns'") >= 1


def kill(system: System, step: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    tokens = [system.issuer.customer_token(system.owner.email), system.issuer.internal_token()]
    done = subprocess.run(
        [sys.executable, "-m", "tests.functions.crash", step, *tokens],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stdout[-2000:] + done.stderr[-2000:]

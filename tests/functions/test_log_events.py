"""The contract of events: what the metrics of Terraform read, against the lines that the running functions write.

Every function is called as the cloud calls it, what it prints is kept, and each metric's filter and extractors are evaluated on it.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import functions_framework
import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery
from werkzeug.test import Client, TestResponse

from common.config import settings
from common.events import MAX_ATTEMPTS
from common.llm.types import ModelChoice, ProviderFailed, ToolCall
from common.log import EVENTS
from common.warehouse.bigquery import Warehouse
from local.app import FUNCTIONS, function_names
from local.issuer import Issuer
from tests.conftest import Database
from tests.contract.log_metrics import Entry, Metric, field, metrics, read_entry, read_filter
from tests.contract.terraform_source import local, resource
from tests.functions.conftest import System, running_system
from tests.functions.scripted import play
from tests.functions.site import load_small_site
from tests.functions.test_retrieval_log import add_entry
from tests.stubs.bigquery_server import BigQueryServer

SECRET = "heliotrope"
DECISION = f"Let's run the {SECRET} discount at 15 percent for all new members, from May 15 on, and announce it in the newsletter."
METRICS = {metric.name: metric for metric in metrics()}


class Heard(Client):
    """A client of one function that keeps what the function prints, as the entries that Cloud Logging would make of it."""

    def __init__(self, function: str, entries: list[Entry]) -> None:
        super().__init__(functions_framework.create_app("main", str(FUNCTIONS / function / "main.py")))
        self._function = function
        self._entries = entries

    def open(self, *arguments: Any, **options: Any) -> TestResponse:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            response = super().open(*arguments, **options)
            response.get_data()
        self._entries += [read_entry(line, self._function) for line in printed.getvalue().splitlines()]
        return response


@pytest.fixture(scope="module")
def entries(module_database: Database, issuer: tuple[Issuer, str]) -> Iterator[list[Entry]]:
    """What the functions printed in the course of a day in which everything happens."""
    with pytest.MonkeyPatch.context() as patch:
        running = running_system(module_database, issuer, patch)
        system = next(running)
        heard: list[Entry] = []
        system._clients.update({name: Heard(name, heard) for name in function_names()})
        load_small_site(system.database, system.owner)
        add_entry(system, "Discounts", "How to plan a discount campaign for new members in spring")
        turns(system, patch)
        end_of_a_session(system)
        event_that_dies(system, patch)
        jobs(system, patch)
        yield heard
        next(running, None)


def turns(system: System, patch: pytest.MonkeyPatch) -> None:
    """By a skill, by the Advisor, with advice from the knowledge base, handed over, recalled with its date and without, failed."""
    system.chat("How many active members do I have?")
    talk = system.chat(f"Please give me some advice: how should I plan a {SECRET} discount campaign?").json
    talk = {"conversation_id": talk["conversation_id"]}
    system.chat("Please list my plans and tell me what you think of them", **talk)
    system.deliver_all()
    system.chat("What plans did you show me?", **talk)
    with patch.context() as scripts:
        play(scripts, [ToolCall("h", "hand_over", {"reason": "needs_advice"})], ["Raise it."])
        system.chat("How many active members do I have?")
        play(
            scripts, [ToolCall("m", "query_kpi_trend", {"metric": "mrr"})], ["156 dollars."], ["156 dollars."]
        )
        system.chat("And my income, please?", **talk)
        system.chat("Say that again?", **talk)
        play(scripts, [lambda: refuse()])
        system.chat("Are you there?", **talk)
    system.deliver_all()
    message = system.database.scalar("select id from messages where role = 'assistant' limit 1")
    rated = system.client("brain").put(
        f"/v1/messages/{message}/feedback", json={"helpful": True}, headers=system.token(system.owner)
    )
    assert rated.status_code < 300


def refuse() -> None:
    raise ProviderFailed("no", ModelChoice("offline", "offline"))


def end_of_a_session(system: System) -> None:
    """And its wrap-up."""
    system.chat(DECISION, end_session=True)
    system.deliver_all()
    assert system.database.scalar("select count(*) from session_logs") == 1


def event_that_dies(system: System, patch: pytest.MonkeyPatch) -> None:
    with patch.context() as scripts:
        play(scripts, [ToolCall("p", "query_site_data", {"target": "memberships"})], ["Two."])
        system.chat("My plans, please")
    (event,) = system.publisher.published
    system.database.run("alter table message_tool_results add constraint never check (false) not valid")
    for _ in range(MAX_ATTEMPTS):
        system.deliver(event)
    system.publisher.published.clear()


def jobs(system: System, patch: pytest.MonkeyPatch) -> None:
    """A day later, with the export on; then a customer goes."""
    tomorrow = {"now": (datetime.now(UTC) + timedelta(days=1)).isoformat()}
    patch.setenv("MEMBERINTEL_BIGQUERY_DATASET", "p.memberintel")
    settings.cache_clear()
    with BigQueryServer() as server:
        client = bigquery.Client(
            project="p", credentials=AnonymousCredentials(), client_options={"api_endpoint": server.url}
        )
        patch.setattr("common.warehouse.bigquery._warehouse", lambda dataset: Warehouse(client, dataset))
        for job in ("relay_events", "backfill_wrap_ups", "nightly_refresh", "export_bigquery"):
            assert system.internal(job, tomorrow if job != "relay_events" else {}).status_code == 200, job
        gone = system.client("brain").delete("/v1/me", headers=system.token(system.owner))
    assert gone.json["complete"], gone.text


def test_every_event_of_the_list_comes_from_the_running_system_and_no_other(entries: list[Entry]) -> None:
    assert {e["jsonPayload"]["event"] for e in entries if "event" in e["jsonPayload"]} == set(EVENTS)


def test_an_event_carries_the_fields_of_the_list_and_no_other(entries: list[Entry]) -> None:
    for entry in entries:
        payload = entry["jsonPayload"]
        if event := payload.get("event"):
            assert set(payload) - {"message", "event"} == set(EVENTS[event]), event


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_matches_lines_that_were_written_and_finds_in_them_what_it_extracts(
    name: str, entries: list[Entry]
) -> None:
    metric = METRICS[name]
    found = metric.matching(entries)
    assert found, f"no line for {metric.filter}"
    for entry in found:
        assert all(metric.label(entry, label) for label in metric.labels)
        assert metric.value is None or metric.number(entry) >= 0


def test_what_an_alert_selects_by_a_label_occurs(entries: list[Entry]) -> None:
    """`outcome="failed"` in a query is worth nothing if no line ever says it."""
    selected = re.findall(
        r'\$\{local\.prom\.(\w+)\}\w*\{\$\{local\.revision\},(\w+)="(\w+)"\}', str(local("query_alerts"))
    )
    assert ("turns_total", "outcome", "failed") in selected
    for name, label, value in selected:
        assert value in {METRICS[name].label(e, label) for e in METRICS[name].matching(entries)}


def test_a_job_that_logs_an_error_is_noticed_and_a_turn_that_fails_is_not_taken_for_one(
    entries: list[Entry],
) -> None:
    (condition,) = resource("google_monitoring_alert_policy", "job_errors")["conditions"]
    internal = [n.replace("_", "-") for n, f in local("functions").items() if f["kind"] != "service"]
    text = condition["condition_matched_log"][0]["filter"]
    text = text.replace("${local.job_names}", " OR ".join(f'"{name}"' for name in internal))
    noticed = [entry for entry in entries if read_filter(text)(entry)]
    services = {field(e, "resource.labels.service_name") for e in noticed}
    assert "persist-tool-results" in services <= set(internal)
    assert "events_dead_total" in {field(e, "jsonPayload.event") for e in noticed}


def test_a_line_names_its_trace_as_cloud_logging_links_it(
    system: System, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its full name; the turn's own thread as well."""
    monkeypatch.setenv("MEMBERINTEL_PUBSUB_PROJECT", "p")
    settings.cache_clear()
    system.client("chat").post(
        "/chat",
        json={"message": "What should I do?"},
        headers={**system.token(system.owner), "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"},
    ).get_data()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"turns_total", "llm_cost_usd"} <= {line.get("event") for line in lines}
    assert {line["logging.googleapis.com/trace"] for line in lines} == {f"projects/p/traces/{'a' * 32}"}


def test_nothing_that_a_customer_wrote_stands_in_a_line(entries: list[Entry]) -> None:
    assert entries
    assert SECRET not in json.dumps(entries)


def test_a_filter_or_an_extractor_that_finds_nothing_is_found_out(entries: list[Entry]) -> None:
    """The proof that the tests above can fail."""
    turn = METRICS["turns_total"]
    assert not Metric("x", turn.filter.replace("turns_total", "turn_total"), None, ()).matching(entries)
    assert not Metric("x", turn.filter.replace("cloud_run", "gce"), None, ()).matching(entries)
    (one, *_) = turn.matching(entries)
    with pytest.raises(ValueError):
        turn.label(one, "tool_name")
    with pytest.raises(ValueError):
        Metric("x", turn.filter, "outcome", ()).number(one)
    with pytest.raises(ValueError):
        read_filter('jsonPayload.event=~"turns.*"')

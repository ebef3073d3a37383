"""The infrastructure against the code: the names that both sides use, without a provider or a plan."""

from __future__ import annotations

import json
import re
from pathlib import Path

import hcl2

from common.config import Settings, variable
from common.db import ROLE_NAMES
from common.log import EVENTS
from local import package
from tests.contract.terraform_source import TERRAFORM, blocks, local, plain, source

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ("dev", "staging", "prod")
FUNCTIONS = {
    "chat",
    "brain",
    "admin",
    "persist_tool_results",
    "generate_wrap_up",
    "relay_events",
    "backfill_wrap_ups",
    "nightly_refresh",
    "export_bigquery",
}
# Read by the functions' framework and by gunicorn, not by our settings.
FRAMEWORK = {"FUNCTION_SOURCE", "THREADS"}


def alert_names() -> set[str]:
    """Every alert policy: the keys of the two maps, and the policies that stand alone."""
    text = source("alerts.tf")
    alone = set(re.findall(r'display_name\s*=\s*"(\w+_\w+)"', text))
    return set(re.findall(r"^ {4}(\w+) = \{\n {6}summary", text, re.M)) | alone


def test_every_event_has_a_metric_and_each_metric_reads_fields_that_its_event_carries() -> None:
    metrics = local("metrics")
    assert {m.get("event", name) for name, m in metrics.items()} == set(EVENTS)
    for name, metric in metrics.items():
        carried = EVENTS[metric.get("event", name)]
        read = [*metric.get("labels", []), *([metric["value"]] if "value" in metric else [])]
        assert set(read) <= set(carried), f"{name} reads {read}, its event carries {carried}"


def test_every_event_that_carries_a_number_is_measured_by_it() -> None:
    numbers = {"row_count", "tokens", "cost_usd", "count", "ms", "seconds", "rows", "hours"}
    for event, fields in EVENTS.items():
        assert local("metrics")[event].get("value") == next((f for f in fields if f in numbers), None)


def test_a_distribution_names_buckets_that_rise() -> None:
    buckets = local("buckets")
    for name, metric in local("metrics").items():
        assert ("value" in metric) == ("buckets" in metric), name
    for bounds in buckets.values():
        assert bounds == sorted(set(bounds))


def test_labels_are_closed_sets_and_never_name_anybody() -> None:
    for name, metric in local("metrics").items():
        for label in metric.get("labels", []):
            assert not re.search(r"(^|_)(id|user|tenant|email|site|conversation)$", label), f"{name}: {label}"


def test_every_alert_has_a_paragraph_in_the_runbook_and_every_paragraph_an_alert() -> None:
    runbook = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    paragraphs = dict(re.findall(r"^### Alert: (\w+)\n(.+)", runbook, re.M))
    assert set(paragraphs) == alert_names()
    assert all(len(text) > 60 for text in paragraphs.values())


def test_the_alerts_that_the_product_promises_are_there() -> None:
    promised = {
        "cutover_rows",
        "events_dead",
        "outbox_age",
        "error_ratio",
        "turn_latency",
        "wrap_up_cost",
        "nightly_missing",
        "export_behind",
        "site_data_old",
    }
    assert promised <= alert_names()


def test_the_functions_of_terraform_are_the_functions_of_the_product() -> None:
    functions = local("functions")
    assert set(functions) == FUNCTIONS
    folders = {p.parent.name for p in (ROOT / "functions").glob("*/main.py")}
    assert folders <= FUNCTIONS
    assert {name for name, f in functions.items() if f["kind"] != "service"} == set(package.FUNCTIONS)
    for folder in folders:
        assert "def main(" in (ROOT / "functions" / folder / "main.py").read_text(encoding="utf-8"), folder
    assert re.search(r'entry_point\s+= "main"', source("functions.tf"))


def test_events_and_times_are_those_of_the_product() -> None:
    functions = local("functions")
    assert {n: f["topic"] for n, f in functions.items() if f["kind"] == "event"} == {
        "persist_tool_results": "tool-results",
        "generate_wrap_up": "session-ended",
    }
    assert {n: f["schedule"] for n, f in functions.items() if f["kind"] == "job"} == {
        "relay_events": "* * * * *",
        "backfill_wrap_ups": "0 2 * * *",
        "nightly_refresh": "0 3 * * *",
        "export_bigquery": "0 4 * * *",
    }


def test_a_function_logs_in_as_a_role_that_the_database_knows_and_none_as_its_owner() -> None:
    roles = {f["role"] for f in local("functions").values()}
    assert roles <= set(ROLE_NAMES.values()) - {ROLE_NAMES["owner"]}


def test_every_variable_and_output_is_described() -> None:
    for kind in ("variable", "output"):
        for block in blocks(kind):
            for name, body in block.items():
                assert len(body.get("description", "")) > 20, f"{kind} {name}"


def test_only_settings_that_the_code_reads_are_set() -> None:
    known = {variable(field) for field in Settings.model_fields}
    text = "\n".join(path.read_text(encoding="utf-8") for path in TERRAFORM.glob("*.tf"))
    named = set(re.findall(r"\bMEMBERINTEL_[A-Z0-9_]+\b", text))
    assert named
    assert named <= known
    secrets = {s.upper() for f in local("functions").values() for s in f["secrets"]}
    assert secrets <= known
    assert (
        set(re.findall(r"\b([A-Z][A-Z0-9]*_?[A-Z0-9_]{3,})\s+= ", source("environment.tf"))) - known
        == FRAMEWORK
    )


def test_nothing_is_granted_to_everybody_but_what_the_load_balancer_calls() -> None:
    for path in TERRAFORM.glob("*.tf"):
        found = re.findall(r"allUsers|allAuthenticatedUsers", path.read_text(encoding="utf-8"))
        assert found == (["allUsers"] if path.name == "services.tf" else []), path.name


def test_every_environment_has_its_variables_and_its_own_state() -> None:
    written = {e: hcl2.loads(source(f"environments/{e}.tfvars")) for e in ENVIRONMENTS}
    required = {name for block in blocks("variable") for name, body in block.items() if "default" not in body}
    for environment, values in written.items():
        assert required <= set(values), environment
        assert plain(values["environment"]) == environment
        assert plain(values["state_bucket"]) in source(f"backends/{environment}.gcs.tfbackend")
    for alone in ("project_id", "domain", "state_bucket"):
        assert len({v[alone] for v in written.values()}) == len(ENVIRONMENTS), alone


def test_what_the_scanner_is_told_to_pass_over_has_a_reason() -> None:
    for path in TERRAFORM.glob("*.tf"):
        for line in re.findall(r".*checkov:skip.*", path.read_text(encoding="utf-8")):
            assert re.fullmatch(r"\s*#checkov:skip=CKV2?_GCP_\d+:\S.{15,}", line), f"{path.name}: {line}"


def test_tables_of_the_warehouse_have_the_columns_they_are_cut_by_and_no_texts() -> None:
    tables = local("tables")
    assert {p.stem for p in (TERRAFORM / "schemas").glob("*.json")} == set(tables)
    for name, table in tables.items():
        columns = {c["name"]: c for c in json.loads(source(f"schemas/{name}.json"))}
        assert {table["partition"], *table["cluster"]} <= set(columns), name
        assert columns[table["partition"]]["type"] in ("DATE", "DATETIME", "TIMESTAMP")
        assert columns[table["partition"]]["mode"] == "REQUIRED"
        assert all(len(c["description"]) > 3 for c in columns.values())
        texts = {
            "summary",
            "next_session_note",
            "tool_input",
            "tool_output",
            "signals",
            "text",
            "content",
            "email",
        }
        assert not texts & set(columns), name

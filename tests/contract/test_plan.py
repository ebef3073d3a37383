"""Rules that the plan of every environment keeps, and proof that each rule finds its fault.

They run where TFCHECK names a command that plans without a provider registry: `TFCHECK DIR --var-file FILE --plan-json FILE`, which also
runs `terraform fmt`, `validate` and `test`.
"""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract import alert_policy, log_metrics, plan_policy
from tests.contract.plan_policy import Plan

TERRAFORM = Path(__file__).resolve().parents[2] / "terraform"
ENVIRONMENTS = ("dev", "staging", "prod")
TFCHECK = os.environ.get("TFCHECK")
pytestmark = pytest.mark.skipif(
    not TFCHECK, reason="TFCHECK names no command that plans without a provider registry"
)


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plan]:
    """The plan of each environment, made by TFCHECK; `terraform test` runs once, for it does not depend on the environment."""
    folder, made = tmp_path_factory.mktemp("plans"), {}
    for environment in ENVIRONMENTS:
        out = folder / f"{environment}.json"
        variables = TERRAFORM / "environments" / f"{environment}.tfvars"
        command = [
            sys.executable,
            str(TFCHECK),
            str(TERRAFORM),
            "--var-file",
            str(variables),
            "--plan-json",
            str(out),
        ]
        once = [] if environment == "prod" else ["--no-test"]
        done = subprocess.run([*command, *once], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        made[environment] = json.loads(out.read_text())
    return made


@pytest.mark.parametrize("rule", [*plan_policy.RULES, *alert_policy.RULES], ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_plan_keeps_every_rule(plans: dict[str, Plan], environment: str, rule: plan_policy.Rule) -> None:
    assert rule(plans[environment]) == []


DATABASE = {("roles/cloudsql.client", "one instance"), ("roles/cloudsql.instanceUser", "one instance")}
MODELS = {("google_project_iam_custom_role.model_caller", "project")}
KEY = {("roles/secretmanager.secretAccessor", "anthropic-api-key")}
WAREHOUSE = {
    ("google_project_iam_custom_role.warehouse_jobs", "project"),
    ("roles/bigquery.dataEditor", "memberintel"),
}


def publishes(*topics: str) -> set[tuple[str, str]]:
    return {("roles/pubsub.publisher", topic) for topic in topics}


ALLOWED = {
    "chat": DATABASE
    | MODELS
    | KEY
    | publishes("tool-results", "session-ended", "retrieval-events")
    | {("roles/storage.objectViewer", "ledger")},
    "brain": DATABASE
    | MODELS
    | WAREHOUSE
    | publishes("session-ended")
    | {("roles/storage.objectUser", "ledger")},
    "admin": DATABASE | MODELS,  # the debug route embeds its query
    "persist_tool_results": DATABASE,
    "generate_wrap_up": DATABASE | MODELS | KEY,
    "relay_events": DATABASE | publishes("tool-results", "session-ended"),
    "backfill_wrap_ups": DATABASE | publishes("session-ended"),
    "nightly_refresh": DATABASE,
    "export_bigquery": DATABASE | WAREHOUSE,
}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_each_function_may_do_what_it_must_and_nothing_else(plans: dict[str, Plan], environment: str) -> None:
    ledger = f"memberintel-{environment}-erasures"
    found = {
        function: {(role, "ledger" if on == ledger else on) for role, on in granted}
        for function, granted in plan_policy.grants(plans[environment]).items()
    }
    assert found == ALLOWED
    accounts = {
        plan_policy.key(a)
        for a, _ in plan_policy.resources(plans[environment], "google_service_account", "function")
    }
    assert accounts == set(ALLOWED)


# What a role of our own holds: each has one purpose.
PERMISSIONS = {
    "memberintelModelCaller": {"aiplatform.endpoints.predict"},
    "memberintelWarehouseJobs": {"bigquery.jobs.create"},
    "memberintelBuildStarter": {"cloudbuild.builds.create", "cloudbuild.builds.get"},
}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_role_of_our_own_holds_what_its_purpose_needs(plans: dict[str, Plan], environment: str) -> None:
    roles = {
        v["role_id"]: set(v["permissions"])
        for _, v in plan_policy.resources(plans[environment], "google_project_iam_custom_role")
    }
    keeper = roles.pop("memberintelSecretKeeper")
    assert not [p for p in keeper if "versions" in p], "it keeps secrets that it cannot read"
    assert roles == PERMISSIONS


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_who_is_no_function_may_do_what_it_must_and_nothing_else(
    plans: dict[str, Plan], environment: str
) -> None:
    """The accounts that call the functions hold no grant but on them, and nobody is given a basic role."""
    plan = plans[environment]
    members = [
        r for r in plan["configuration"]["root_module"]["resources"] if r["type"].endswith("_iam_member")
    ]
    held = {
        account: {
            r["address"]
            for r in members
            if f"google_service_account.{account}" in r["expressions"]["member"].get("references", [])
        }
        for account in ("pusher", "scheduler", "migrator", "builder")
    }
    assert held == {
        "pusher": set(),
        "scheduler": set(),
        "migrator": set(),
        "builder": {
            "google_project_iam_member.builder_logs",
            "google_storage_bucket_iam_member.builder_source",
            "google_artifact_registry_repository_iam_member.builder",
        },
    }
    roles = {
        v.get("role")
        for r in plan["planned_values"]["root_module"]["resources"]
        if "_iam_" in r["type"] and (v := r["values"])
    }
    assert not roles & {"roles/owner", "roles/editor", "roles/viewer"}
    assert not [
        r["address"]
        for r in plan["planned_values"]["root_module"]["resources"]
        if r["type"].endswith(("_iam_binding", "_iam_policy"))
    ], "only single members are granted, so that no grant takes another away"


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_who_calls_a_model_gets_its_key_by_reference(plans: dict[str, Plan], environment: str) -> None:
    """Without it the offline model would answer customers."""
    given = plan_policy.environment(plans[environment])
    assert {name for name, variables in given.items() if "ANTHROPIC_API_KEY" in variables} == {
        "chat",
        "generate_wrap_up",
    }
    assert given["chat"]["ANTHROPIC_API_KEY"] is given["generate_wrap_up"]["ANTHROPIC_API_KEY"] is None


def test_the_metrics_are_those_that_the_log_lines_are_tried_on(plans: dict[str, Plan]) -> None:
    planned = {
        v["name"]: (v["filter"], v["value_extractor"], v["label_extractors"] or {})
        for _, v in plan_policy.resources(plans["prod"], "google_logging_metric")
    }
    assert planned == {
        m.name: (
            m.filter,
            f"EXTRACT(jsonPayload.{m.value})" if m.value else None,
            {label: f"EXTRACT(jsonPayload.{label})" for label in m.labels},
        )
        for m in log_metrics.metrics()
    }


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_metric_feeds_an_alert_or_the_dashboard(plans: dict[str, Plan], environment: str) -> None:
    plan = plans[environment]
    metrics = {v["name"] for _, v in plan_policy.resources(plan, "google_logging_metric")}
    watching = json.dumps(
        [
            values
            for kind in ("google_monitoring_alert_policy", "google_monitoring_dashboard")
            for _, values in plan_policy.resources(plan, kind)
        ]
    )
    assert metrics
    assert {
        m for m in metrics if not re.search(rf"user[_/]{m}\b|user[_/]{m}_(sum|count|bucket)\b", watching)
    } == set()
    assert (
        set(re.findall(r"logging_googleapis_com:user_(\w+?)(?:_sum|_count|_bucket)?\{", watching)) <= metrics
    )


def test_the_notice_of_the_cutover_has_a_person_to_go_to(plans: dict[str, Plan]) -> None:
    policies = dict(plan_policy.resources(plans["prod"], "google_monitoring_alert_policy"))
    cutover = policies['google_monitoring_alert_policy.query["cutover_rows"]']
    queries = [c["condition_prometheus_query_language"][0]["query"] for c in cutover["conditions"]]
    assert all(query.endswith("> 40000") for query in queries)
    channels = dict(plan_policy.resources(plans["prod"], "google_monitoring_notification_channel"))
    assert channels["google_monitoring_notification_channel.knowledge"]["labels"]["email_address"]


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_release_cannot_widen_its_own_rights(plans: dict[str, Plan], environment: str) -> None:
    plan = plans[environment]
    held = {
        name: {v["role"] for _, v in plan_policy.resources(plan, "google_project_iam_member", name)}
        for name in ("planner", "applier")
    }
    assert all("viewer" in r.lower() or r in PLANS for r in held["planner"])
    assert not held["applier"] & TOO_MUCH
    grants = dict(plan_policy.resources(plan, "google_project_iam_member", "applier_grants"))
    assert [bool(v["condition"]) for v in grants.values()] == [True], (
        "what it grants is limited by a condition"
    )
    actors = {
        r["name"]
        for r in plan["configuration"]["root_module"]["resources"]
        if r["type"] == "google_service_account_iam_member"
    }
    assert actors == {"applier_acts_as"}, "the planner acts as nobody"


PLANS = {
    "roles/artifactregistry.reader",
    "roles/browser",
    "roles/iam.securityReviewer",
    "roles/logging.logWriter",
    "roles/serviceusage.serviceUsageConsumer",
}
TOO_MUCH = {
    "roles/owner",
    "roles/editor",
    "roles/iam.roleAdmin",
    "roles/iam.securityAdmin",
    "roles/iam.serviceAccountTokenCreator",
    "roles/iam.serviceAccountUser",
    "roles/resourcemanager.projectIamAdmin",
    "roles/secretmanager.admin",
}


def edit(plan: Plan, address: str, change: Callable[[dict[str, Any]], None]) -> None:
    found = [r for r in plan["planned_values"]["root_module"]["resources"] if r["address"] == address]
    assert found, address
    change(found[0]["values"])


def drop(plan: Plan, address: str) -> None:
    listed = plan["planned_values"]["root_module"]["resources"]
    assert [r for r in listed if r["address"] == address], address
    listed[:] = [r for r in listed if r["address"] != address]


PUSH = 'google_pubsub_subscription.push["persist_tool_results"]'
JOB = 'google_cloud_scheduler_job.this["nightly_refresh"]'
CHAT = 'google_cloud_run_v2_service.this["chat"]'
SQL = "google_sql_database_instance.main"
TABLE = 'google_bigquery_table.this["usage_charges"]'
EVENTS_DEAD = 'google_monitoring_alert_policy.threshold["events_dead"]'
LATENCY = 'google_monitoring_alert_policy.threshold["turn_latency"]'
NIGHTLY = 'google_monitoring_alert_policy.threshold["nightly_missing"]'
COST = 'google_monitoring_alert_policy.query["wrap_up_cost"]'


def threshold(values: dict[str, Any]) -> dict[str, Any]:
    (condition,) = values["conditions"]
    found: dict[str, Any] = condition["condition_threshold"][0]
    return found


def reword(plan: Plan, old: str, new: str) -> None:
    """Change a word of the query on the wrap-ups' cost."""

    def change(values: dict[str, Any]) -> None:
        query = values["conditions"][0]["condition_prometheus_query_language"][0]
        assert old in query["query"]
        query["query"] = query["query"].replace(old, new)

    edit(plan, COST, change)


FAULTS: dict[str, tuple[plan_policy.Rule, Callable[[Plan], None]]] = {
    "everybody publishes": (
        plan_policy.public_members,
        lambda p: edit(
            p,
            'google_pubsub_topic_iam_member.dead_publisher["tool-results"]',
            lambda v: v.update(member="allUsers"),
        ),
    ),
    "around the load balancer": (
        plan_policy.exposed_services,
        lambda p: edit(p, CHAT, lambda v: v.update(ingress="INGRESS_TRAFFIC_ALL")),
    ),
    "public database": (
        plan_policy.unsafe_database,
        lambda p: edit(p, SQL, lambda v: v["settings"][0]["ip_configuration"][0].update(ipv4_enabled=True)),
    ),
    "deletable database": (
        plan_policy.unsafe_database,
        lambda p: edit(p, SQL, lambda v: v.update(deletion_protection=False)),
    ),
    "no way back in time": (
        plan_policy.unsafe_database,
        lambda p: edit(
            p,
            SQL,
            lambda v: v["settings"][0]["backup_configuration"][0].update(
                point_in_time_recovery_enabled=False
            ),
        ),
    ),
    "two roles": (
        plan_policy.several_roles,
        lambda p: edit(
            p, 'google_sql_user.function["chat"]', lambda v: v["database_roles"].append("memberintel_sweep")
        ),
    ),
    "a key by value": (
        plan_policy.secrets_by_value,
        lambda p: edit(
            p,
            'google_cloudfunctions2_function.this["generate_wrap_up"]',
            lambda v: v["service_config"][0]["environment_variables"].update(ANTHROPIC_API_KEY="k"),
        ),
    ),
    "no dead letters": (
        plan_policy.lost_messages,
        lambda p: edit(p, PUSH, lambda v: v.update(dead_letter_policy=[])),
    ),
    "nobody moves them": (
        plan_policy.lost_messages,
        lambda p: drop(p, 'google_pubsub_topic_iam_member.dead_publisher["tool-results"]'),
    ),
    "nobody acknowledges them": (
        plan_policy.lost_messages,
        lambda p: drop(p, 'google_pubsub_subscription_iam_member.dead_acknowledger["tool-results"]'),
    ),
    "nobody reads them": (
        plan_policy.lost_messages,
        lambda p: drop(p, 'google_pubsub_subscription.dead_reader["tool-results"]'),
    ),
    "an idle subscription expires": (
        plan_policy.lost_messages,
        lambda p: edit(p, PUSH, lambda v: v.update(expiration_policy=[])),
    ),
    "a job without identity": (
        plan_policy.careless_jobs,
        lambda p: edit(p, JOB, lambda v: v["http_target"][0].update(oidc_token=[])),
    ),
    "a job tried once": (
        plan_policy.careless_jobs,
        lambda p: edit(p, JOB, lambda v: v["retry_config"][0].update(retry_count=0)),
    ),
    "an impatient job": (
        plan_policy.careless_jobs,
        lambda p: edit(p, JOB, lambda v: v.update(attempt_deadline="600s")),
    ),
    "too many connections": (
        plan_policy.pool_arithmetic,
        lambda p: edit(p, CHAT, lambda v: v["scaling"][0].update(max_instance_count=60)),
    ),
    "more requests than threads": (
        plan_policy.waiting_requests,
        lambda p: edit(p, CHAT, lambda v: v["template"][0].update(max_instance_request_concurrency=200)),
    ),
    "a processor left to chance": (
        plan_policy.unstated_processor,
        lambda p: edit(
            p, CHAT, lambda v: v["template"][0]["containers"][0]["resources"][0].update(cpu_idle=None)
        ),
    ),
    "everybody by another kind of grant": (
        plan_policy.public_members,
        lambda p: edit(p, PUSH, lambda v: v.update(members=["allAuthenticatedUsers"])),
    ),
    "another caller": (
        plan_policy.strange_callers,
        lambda p: edit(
            p,
            'google_cloud_run_v2_service_iam_member.caller["nightly_refresh"]',
            lambda v: v.update(role="roles/run.admin"),
        ),
    ),
    "no check of the pools": (plan_policy.pool_arithmetic, lambda p: p.update(checks=[])),
    "a threshold on a distribution's sum": (
        alert_policy.unevaluable_thresholds,
        lambda p: edit(
            p, LATENCY, lambda v: threshold(v)["aggregations"][0].update(cross_series_reducer="REDUCE_SUM")
        ),
    ),
    "a percentile of a count": (
        alert_policy.unevaluable_thresholds,
        lambda p: edit(
            p,
            EVENTS_DEAD,
            lambda v: threshold(v)["aggregations"][0].update(per_series_aligner="ALIGN_PERCENTILE_99"),
        ),
    ),
    "a metric that is not there": (
        alert_policy.unevaluable_thresholds,
        lambda p: edit(
            p,
            EVENTS_DEAD,
            lambda v: threshold(v).update(filter=threshold(v)["filter"].replace("dead", "lost")),
        ),
    ),
    "a day and two hours": (
        alert_policy.unevaluable_thresholds,
        lambda p: edit(p, NIGHTLY, lambda v: threshold(v).update(duration="7200s")),
    ),
    "silence is good news": (
        alert_policy.unevaluable_thresholds,
        lambda p: edit(p, NIGHTLY, lambda v: threshold(v).update(evaluation_missing_data=None)),
    ),
    "a sum that is no series": (
        alert_policy.unevaluable_queries,
        lambda p: reword(p, "wrap_up_cost_usd_sum", "wrap_up_cost_usd"),
    ),
    "a label that is not extracted": (
        alert_policy.unevaluable_queries,
        lambda p: reword(p, '"cloud_run_revision"', '"cloud_run_revision",tenant="x"'),
    ),
    "a week": (alert_policy.unevaluable_queries, lambda p: reword(p, "[24h]", "[7d]")),
    "nobody is told": (
        alert_policy.silent_alerts,
        lambda p: edit(p, COST, lambda v: v.update(notification_channels=[])),
    ),
    "rows for good": (
        plan_policy.careless_tables,
        lambda p: edit(p, TABLE, lambda v: v["time_partitioning"][0].update(expiration_ms=None)),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_rule_finds_the_fault_that_it_is_for(plans: dict[str, Plan], fault: str) -> None:
    rule, spoil = FAULTS[fault]
    plan = copy.deepcopy(plans["prod"])
    spoil(plan)
    assert rule(plan)

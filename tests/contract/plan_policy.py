"""What a plan of the infrastructure may not contain: rules over the JSON of `terraform show -json`.

Each rule takes a plan and returns what is wrong with it, as sentences that name the resource; nothing is wrong with an empty list. What the
plan does not know yet (addresses of things not made) is judged by the configuration's references.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

Plan = dict[str, Any]
Rule = Callable[[Plan], list[str]]

PUBLIC = {"allUsers", "allAuthenticatedUsers"}
# The load balancer has no identity: these three are called by everybody it lets through, and check the token themselves.
EDGE = {f'google_cloud_run_v2_service_iam_member.edge["{name}"]' for name in ("chat", "brain", "admin")}


def resources(plan: Plan, kind: str, name: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Address and planned values of each resource of a type, and of a name if one is given."""
    for resource in plan["planned_values"]["root_module"]["resources"]:
        if resource["type"] == kind and name in (None, resource["name"]):
            yield resource["address"], resource["values"]


def key(address: str) -> str:
    """The key of one instance: `chat` for `google_x.y["chat"]`, empty without one."""
    found = re.search(r'\["(.*)"\]$', address)
    return found.group(1) if found else ""


def environment(plan: Plan) -> dict[str, dict[str, str | None]]:
    """Function → variable → value, for services and functions alike; None for a reference to a secret, missing while unknown."""
    found: dict[str, dict[str, str | None]] = {}
    for address, values in resources(plan, "google_cloud_run_v2_service"):
        entries = values["template"][0]["containers"][0]["env"]
        found[key(address)] = {
            e["name"]: e.get("value") for e in entries if e["value_source"] or "value" in e
        }
    for address, values in resources(plan, "google_cloudfunctions2_function"):
        config = values["service_config"][0]
        found[key(address)] = {
            **config["environment_variables"],
            **{e["key"]: None for e in config["secret_environment_variables"]},
        }
    return found


def functions(plan: Plan) -> dict[str, dict[str, int]]:
    """Function → its `concurrency`, `instances` and `timeout` (seconds)."""
    found = {}
    for address, values in resources(plan, "google_cloud_run_v2_service"):
        template = values["template"][0]
        found[key(address)] = {
            "concurrency": template["max_instance_request_concurrency"],
            "instances": values["scaling"][0]["max_instance_count"],
            "timeout": _seconds(template["timeout"]),
        }
    for address, values in resources(plan, "google_cloudfunctions2_function"):
        config = values["service_config"][0]
        found[key(address)] = {
            "concurrency": config["max_instance_request_concurrency"],
            "instances": config["max_instance_count"],
            "timeout": config["timeout_seconds"],
        }
    return found


def grants(plan: Plan) -> dict[str, set[tuple[str, str]]]:
    """Function → what it may do: pairs of a role and the resource that it is granted on. A grant whose key does not begin with its function
    stands under its own address."""
    expressions = {
        r["address"]: r.get("expressions", {}) for r in plan["configuration"]["root_module"]["resources"]
    }
    found: dict[str, set[tuple[str, str]]] = {}
    for resource in plan["planned_values"]["root_module"]["resources"]:
        if not resource["type"].endswith("_iam_member"):
            continue
        written = expressions[f"{resource['type']}.{resource['name']}"]
        holders = written["member"].get("references", [])
        if not {"google_service_account.function", "local.database_accounts"} & set(holders):
            continue
        index = key(resource["address"])
        if index.startswith(("migrator-", "operator-")):
            continue  # the same grant for an identity that is no function's
        holder = next(
            (f for f in functions(plan) if index == f or index.startswith(f"{f}-")), resource["address"]
        )
        values = resource["values"]
        role = values.get("role") or written["role"]["references"][-1]
        found.setdefault(holder, set()).add((role, _target(resource["type"], values)))
    return found


def public_members(plan: Plan) -> list[str]:
    """Who grants anything to everybody, other than the edge."""
    return [
        f"{r['address']} is granted to everybody"
        for r in plan["planned_values"]["root_module"]["resources"]
        if r["address"] not in EDGE and any(f'"{name}"' in json.dumps(r["values"]) for name in PUBLIC)
    ]


def strange_callers(plan: Plan) -> list[str]:
    """Which function does not run as its own account, or is called by another than Pub/Sub's or Scheduler's account."""
    written = {
        r["address"]: r.get("expressions", {}) for r in plan["configuration"]["root_module"]["resources"]
    }
    runs_as = {
        "google_cloud_run_v2_service.this": lambda e: e["template"][0]["service_account"],
        "google_cloudfunctions2_function.this": lambda e: e["service_config"][0]["service_account_email"],
    }
    wrong = [
        f"{address} does not run as its own account"
        for address, account in runs_as.items()
        if set(account(written[address])["references"]) != {"google_service_account.function", "each.key"}
    ]
    invoked = {
        (address, r["role"])
        for kind in ("google_cloud_run_v2_service_iam_member", "google_cloudfunctions2_function_iam_member")
        for address, r in resources(plan, kind)
    }
    callers = {f'google_cloud_run_v2_service_iam_member.caller["{name}"]' for name in functions(plan)}
    return wrong + [
        f"{address} may call, or do more than call"
        for address, role in invoked
        if address not in EDGE | callers or role != "roles/run.invoker"
    ]


def exposed_services(plan: Plan) -> list[str]:
    """Which function can be reached around the load balancer, or from outside at all."""
    wrong = [
        f"{address} is reachable around the load balancer"
        for address, values in resources(plan, "google_cloud_run_v2_service")
        if values["ingress"] != "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER"
    ]
    return wrong + [
        f"{address} is reachable from outside"
        for address, values in resources(plan, "google_cloudfunctions2_function")
        if values["service_config"][0]["ingress_settings"] != "ALLOW_INTERNAL_ONLY"
    ]


def unsafe_database(plan: Plan) -> list[str]:
    """What makes the database reachable, enterable by password, or impossible to restore; in prod also what may delete it."""
    wrong = []
    for address, values in resources(plan, "google_sql_database_instance"):
        settings = values["settings"][0]
        network, backup = settings["ip_configuration"][0], settings["backup_configuration"][0]
        flags = {f["name"]: f["value"] for f in settings["database_flags"]}
        checks = {
            "has a public address": network["ipv4_enabled"] is False and not network["authorized_networks"],
            "talks without TLS": network["ssl_mode"]
            in ("ENCRYPTED_ONLY", "TRUSTED_CLIENT_CERTIFICATE_REQUIRED"),
            "has no login by IAM": flags.get("cloudsql.iam_authentication") == "on",
            "has no backups": backup["enabled"] is True
            and backup["backup_retention_settings"][0]["retained_backups"] >= 7,
            "has no point-in-time recovery": backup["point_in_time_recovery_enabled"] is True,
        }
        if _variable(plan, "environment") == "prod":
            checks["can be deleted"] = (
                values["deletion_protection"] and settings["deletion_protection_enabled"]
            )
            checks["is in one zone"] = settings["availability_type"] == "REGIONAL"
        wrong += [f"{address} {fault}" for fault, good in checks.items() if not good]
    return wrong + [
        f"{address} logs in by password"
        for address, values in resources(plan, "google_sql_user")
        if values["type"] != "CLOUD_IAM_SERVICE_ACCOUNT" or values.get("password")
    ]


def several_roles(plan: Plan) -> list[str]:
    """Which function is a member of more or less than one group role, or of one that could make others."""
    return [
        f"{address} has the database roles {values['database_roles']}"
        for address, values in resources(plan, "google_sql_user", "function")
        if len(values["database_roles"]) != 1
        or values["database_roles"][0] in ("cloudsqlsuperuser", "memberintel_owner")
    ]


def secrets_by_value(plan: Plan) -> list[str]:
    """Which secret stands in the plan, or would in the state."""
    wrong = [
        f"{r['address']} puts a secret into the state"
        for r in plan["planned_values"]["root_module"]["resources"]
        if r["type"]
        in ("google_secret_manager_secret_version", "google_service_account_key", "random_password")
    ]
    return wrong + [
        f"{address} is given {name} by value"
        for address, name in _given_by_value(plan)
        if re.search(r"(API_KEY|SECRET|PASSWORD|TOKEN)(?!_URL$)", name)
    ]


def lost_messages(plan: Plan) -> list[str]:
    """Which subscription loses a message: none to fall into, nobody who may move it there, nobody who reads it, or an expiry."""
    subscriptions = dict(resources(plan, "google_pubsub_subscription"))
    movers = {
        v["topic"]
        for _, v in resources(plan, "google_pubsub_topic_iam_member", "dead_publisher")
        if _is_agent(v)
    }
    takers = {
        v["subscription"]
        for _, v in resources(plan, "google_pubsub_subscription_iam_member", "dead_acknowledger")
        if _is_agent(v)
    }
    readers = {key(address) for address in subscriptions if ".dead_reader[" in address}
    pushed = {key(a): v["topic"] for a, v in _written_topics(plan)}
    wrong = []
    for address, values in subscriptions.items():
        if values["expiration_policy"] != [{"ttl": ""}]:
            wrong.append(f"{address} expires when it is idle")
        if values["ack_deadline_seconds"] != 600:
            wrong.append(f"{address} is delivered again while it is worked on")
        if key(address) in readers and ".dead_reader[" in address:
            continue
        topic = pushed.get(key(address), key(address))
        checks = {
            "has no dead-letter topic": [p["max_delivery_attempts"] for p in values["dead_letter_policy"]]
            == [10],
            "is retried at once": bool(values["retry_policy"]),
            "cannot be moved to its dead-letter topic": f"{topic}-dead" in movers,
            "cannot be acknowledged by Pub/Sub": values["name"] in takers,
            "has dead letters that nobody reads": topic in readers,
            "is pushed without an identity": not values["push_config"]
            or bool(values["push_config"][0]["oidc_token"][0]["audience"]),
        }
        wrong += [f"{address} {fault}" for fault, good in checks.items() if not good]
    return wrong


def careless_jobs(plan: Plan) -> list[str]:
    """Which Scheduler job calls without an identity, gives up at once, or before its function does."""
    timeouts = {name: f["timeout"] for name, f in functions(plan).items()}
    wrong = []
    for address, values in resources(plan, "google_cloud_scheduler_job"):
        tokens = values["http_target"][0]["oidc_token"]
        deadline = _seconds(values["attempt_deadline"])
        checks = {
            "has no identity": bool(tokens) and bool(tokens[0]["audience"]),
            "is not tried again": 1 <= (values["retry_config"][0].get("retry_count") or 0) <= 5,
            "gives up before its function": timeouts[key(address)] < deadline <= 1800,
            "is not in UTC": values["time_zone"] == "Etc/UTC",
        }
        wrong += [f"{address} {fault}" for fault, good in checks.items() if not good]
    return wrong


def pool_arithmetic(plan: Plan) -> list[str]:
    """Whether all instances together may hold more than 80 % of the database's connections, or the plan's own check of it is gone."""
    variables = environment(plan)
    held = sum(
        f["instances"] * int(variables[name]["MEMBERINTEL_POOL_SIZE"] or 0)
        for name, f in functions(plan).items()
    )
    flags = {
        flag["name"]: flag["value"]
        for _, values in resources(plan, "google_sql_database_instance")
        for flag in values["settings"][0]["database_flags"]
    }
    allowed = int(flags["max_connections"])
    wrong = [f"{held} connections of {allowed} may be held"] if held > 0.8 * allowed else []
    status = {c["address"]["to_display"]: c["status"] for c in plan["checks"]}
    return (
        wrong
        if status.get("check.pool_arithmetic") == "pass"
        else [*wrong, "the plan does not check its pools"]
    )


def waiting_requests(plan: Plan) -> list[str]:
    """Which function is sent more requests at a time than it has threads."""
    variables = environment(plan)
    return [
        f"{name} takes {f['concurrency']} requests with {variables[name].get('THREADS')} threads"
        for name, f in functions(plan).items()
        if str(f["concurrency"]) != variables[name].get("THREADS") or f["concurrency"] < 2
    ]


def unstated_processor(plan: Plan) -> list[str]:
    """Which service does not say whether its processor idles: setting limits alone would keep it allocated, and paid for."""
    return [
        f"{address} does not state its processor's idling and its boost"
        for address, values in resources(plan, "google_cloud_run_v2_service")
        if not all(
            values["template"][0]["containers"][0]["resources"][0].get(n)
            for n in ("cpu_idle", "startup_cpu_boost")
        )
    ]


def careless_tables(plan: Plan) -> list[str]:
    """Which table of the warehouse keeps rows for good, or lets a query read all of it."""
    wrong = []
    for address, values in resources(plan, "google_bigquery_table"):
        partitions = values["time_partitioning"][0]
        checks = {
            "is not partitioned by day": partitions["type"] == "DAY" and bool(partitions["field"]),
            "keeps its rows for good": bool(partitions["expiration_ms"]),
            "is not clustered": bool(values["clustering"]),
            "can be read whole by mistake": values["require_partition_filter"] is True,
        }
        wrong += [f"{address} {fault}" for fault, good in checks.items() if not good]
    return wrong


RULES: tuple[Rule, ...] = (
    public_members,
    strange_callers,
    exposed_services,
    unsafe_database,
    several_roles,
    secrets_by_value,
    lost_messages,
    careless_jobs,
    pool_arithmetic,
    waiting_requests,
    unstated_processor,
    careless_tables,
)


def _given_by_value(plan: Plan) -> Iterator[tuple[str, str]]:
    """Every variable of a service, a job or a function that is no reference to a secret."""
    for address, values in resources(plan, "google_cloudfunctions2_function"):
        for name in values["service_config"][0]["environment_variables"]:
            yield address, name
    for kind in ("google_cloud_run_v2_service", "google_cloud_run_v2_job"):
        for address, values in resources(plan, kind):
            template = values["template"][0]
            template = template.get("template", [template])[0]
            for entry in template["containers"][0]["env"]:
                if not entry["value_source"]:
                    yield address, entry["name"]


def _variable(plan: Plan, name: str) -> Any:
    return plan["variables"][name]["value"]


def _seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def _is_agent(values: dict[str, Any]) -> bool:
    return str(values.get("member", "")).endswith("@gcp-sa-pubsub.iam.gserviceaccount.com")


def _written_topics(plan: Plan) -> Iterator[tuple[str, dict[str, str]]]:
    """The topic of each push subscription: its name begins with it and ends with its function."""
    for address, values in resources(plan, "google_pubsub_subscription", "push"):
        yield address, {"topic": values["name"].removesuffix("-" + key(address).replace("_", "-"))}


def _target(kind: str, values: dict[str, Any]) -> str:
    """What a grant is on: the name of the resource, or the project and the condition that narrows it."""
    if kind == "google_project_iam_member":
        return "one instance" if values.get("condition") else "project"
    for attribute in ("secret_id", "topic", "subscription", "bucket", "dataset_id", "repository", "name"):
        if values.get(attribute):
            return str(values[attribute])
    return "unknown"

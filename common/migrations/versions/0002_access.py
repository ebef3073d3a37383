"""Who may touch which rows: row level security, enabled and forced on every table, and the privileges of each role.

The roles exist before this runs: Terraform makes them in the cloud, the launcher on a laptop.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# The value is bare, not wrapped in a sub-select, so that the planner knows it and uses the index on user_id. A setting that was made in an
# earlier transaction of the connection reads as '', not as NULL.
USER = "nullif(current_setting('app.user_id', true), '')::uuid"
OWN = f"user_id = {USER}"
OWN_TENANT = "exists (select 1 from users u where u.tenant_id = {table}.{column})"
BY_IDENTITY = (
    "issuer = current_setting('app.issuer', true) and subject = current_setting('app.subject', true)"
)
GLOBAL = "tenant_id = 'global'"
ALL = "true"

R, C, U, D = "select", "insert", "update", "delete"
APP, JOBS, SWEEP, ADMIN, OWNER = "app", "jobs", "sweep", "admin_read", "owner"

PER_USER = [
    "sites",
    "site_imports",
    "memberships",
    "members",
    "subscriptions",
    "transactions",
    "conversations",
    "sessions",
    "turns",
    "messages",
    "message_tool_results",
    "message_feedback",
    "brain_documents",
    "brain_document_revisions",
    "usage_charges",
    "outbox_events",
]

# (role, table, privileges, rows it reads or changes, rows it may write if that differs)
RULES: list[tuple[str, str, str, str, str | None]] = [
    *((APP, table, "select insert update delete", OWN, None) for table in PER_USER),
    (APP, "users", R, f"id = {USER} or ({BY_IDENTITY})", None),
    (APP, "users", C, ALL, BY_IDENTITY),
    (APP, "users", D, f"id = {USER}", None),
    (APP, "tenants", R, OWN_TENANT.format(table="tenants", column="id"), None),
    (APP, "tenants", C, ALL, "tier = 'free'"),
    (APP, "session_logs", "select delete", OWN, None),
    # Only a request in which the customer edits sets the actor: nothing that a model does can change a wrap-up.
    (APP, "session_logs", U, f"{OWN} and current_setting('app.actor', true) = 'customer'", OWN),
    (APP, "brain_entries", R, f"{GLOBAL} or {OWN}", None),
    (APP, "brain_entries", "insert update delete", OWN, None),
    (APP, "brain_terms", R, ALL, None),
    (APP, "access_log", R, OWN, None),  # who looked at what is theirs is part of a customer's export
    (APP, "retrieval_events", "select insert", OWN, None),
    (
        APP,
        "usage_counters",
        "select insert update",
        OWN_TENANT.format(table="usage_counters", column="tenant_id"),
        None,
    ),
    (JOBS, "outbox_events", "select insert update delete", ALL, None),
    *((JOBS, table, R, OWN, None) for table in ("conversations", "messages", "sites")),
    *((JOBS, table, "select update", OWN, None) for table in ("sessions", "turns")),
    (JOBS, "message_tool_results", "select insert delete", OWN, None),
    (JOBS, "session_logs", "select insert", OWN, None),
    (JOBS, "usage_charges", "select insert update", OWN, None),
    (JOBS, "users", R, f"id = {USER}", None),
    (JOBS, "tenants", R, OWN_TENANT.format(table="tenants", column="id"), None),
    (
        JOBS,
        "usage_counters",
        "select insert update",
        OWN_TENANT.format(table="usage_counters", column="tenant_id"),
        None,
    ),
    (SWEEP, "outbox_events", "select insert", ALL, None),
    *(
        (SWEEP, table, R, ALL, None)
        for table in [
            "users",
            "tenants",
            "sites",
            "memberships",
            "members",
            "subscriptions",
            "transactions",
            "conversations",
            "messages",
            "message_feedback",
            "usage_counters",
            "brain_entries",
        ]
    ),
    (SWEEP, "sessions", "select update", ALL, None),
    *(
        (SWEEP, table, "select delete", ALL, None)
        for table in ("turns", "message_tool_results", "session_logs", "retrieval_events")
    ),
    (SWEEP, "usage_charges", "select update", ALL, None),
    (SWEEP, "usage_counters", U, ALL, None),
    (SWEEP, "brain_entries", U, "user_id is not null", None),  # reembed, for MEMORY
    (SWEEP, "brain_documents", "select insert update", ALL, None),
    (SWEEP, "brain_document_revisions", "select insert", ALL, None),
    *(
        (SWEEP, table, "select insert update delete", ALL, None)
        for table in ("entry_performance", "job_runs", "export_days")
    ),
    *(
        (ADMIN, table, R, ALL, None)
        for table in [
            "entry_performance",
            "retrieval_events",
            "message_feedback",
            "job_runs",
            "export_days",
            "usage_charges",
            "access_log",
        ]
    ),
    (ADMIN, "brain_entries", R, GLOBAL, None),
    (ADMIN, "brain_terms", R, ALL, None),
    (ADMIN, "access_log", C, ALL, ALL),
    *(
        (OWNER, table, "select insert update delete", ALL, None)
        for table in ("tenants", "users", "access_log")
    ),
    # An operator's commands find the user that a row belongs to, and then work in that user's scope.
    *((OWNER, table, R, ALL, None) for table in ("usage_charges", "conversations", "turns", "sites")),
    (OWNER, "brain_entries", "select insert update delete", GLOBAL, None),
    (OWNER, "brain_terms", "select insert update delete", ALL, None),
]

# The spend stop needs one sum over all tenants, which no customer's role may otherwise see.
SPENT_SINCE = """
    create function spent_since(moment timestamptz) returns numeric
    language sql stable security definer set search_path = public
    as $$ select coalesce(sum(coalesce(cost_usd, reserved_usd)), 0) from usage_charges where created_at >= moment $$
"""


def upgrade() -> None:
    connection = op.get_bind()
    tables = sa.inspect(connection).get_table_names()
    for table in sorted(set(tables) - {"alembic_version"}):
        op.execute(f"alter table {table} enable row level security")
        op.execute(f"alter table {table} force row level security")
    for role in (APP, JOBS, SWEEP, ADMIN):
        op.execute(f"grant usage on schema public to memberintel_{role}")
        op.execute(f"grant select on alembic_version to memberintel_{role}")
    for role, table, privileges, rows, written in RULES:
        for privilege in privileges.split():
            using = "" if privilege == C else f" using ({rows})"
            check = f" with check ({written or rows})" if privilege in (C, U) else ""
            op.execute(f"grant {privilege} on {table} to memberintel_{role}")
            op.execute(
                f"create policy {role}_{privilege} on {table} for {privilege} to memberintel_{role}{using}{check}"
            )
    op.execute(SPENT_SINCE)
    op.execute("revoke all on function spent_since from public")
    op.execute("grant execute on function spent_since to memberintel_app, memberintel_jobs")

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
    (APP, "request_counts", "select insert update", OWN, None),
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
            "site_imports",
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

# An analysis that comes by while an import writes a million people sees pages full of rows that are not committed, and tells the planner
# that the table is empty: each look for a person then goes through everybody. The import has it counted again, its own rows included.
ANALYZE_MEMBERS = """
    create function analyze_members() returns void
    language plpgsql security definer set search_path = public, pg_temp
    as $$ begin analyze members; end $$
"""

# The spend stop needs one sum over all tenants, which no customer's role may otherwise see.
SPENT_SINCE = """
    create function spent_since(moment timestamptz) returns numeric
    language sql stable security definer set search_path = public
    as $$ select coalesce(sum(coalesce(cost_usd, reserved_usd)), 0) from usage_charges where created_at >= moment $$
"""

# A statement that counts refuses itself where a counter is at its limit, so that its commit can go with it. Tells which counters rose.
LIMIT_REACHED = """
    create function limit_reached(counted text[]) returns boolean
    language plpgsql
    as $$ begin
        raise exception 'a limit is reached' using errcode = 'MI001', detail = coalesce(array_to_string(counted, ','), '');
    end $$
"""

# So does one that goes on from what its process took for granted, where that is not so.
NOT_AS_EXPECTED = """
    create function not_as_expected() returns boolean
    language plpgsql
    as $$ begin raise exception 'something is not as expected' using errcode = 'MI002'; end $$
"""

# Within `erase_user` the tables' owner sees everything, and may lock what turns and consumers lock.
ERASING = "current_setting('app.erasing', true) = 'on'"
LOCKED_BY_ERASURE = ("conversations", "sessions", "outbox_events")

# Erasing asks of every row whether it still holds anything of a user, which no customer's role may. So the owner does it, for the
# transaction's own user only, and looks for what it found itself: the function answers no question about anybody else.
ERASE_USER = """
    create function erase_user(erased uuid) returns jsonb
    language plpgsql security definer set search_path = public, pg_temp
    as $$
    declare
        person record;
        one record;
        alone boolean;
        counted bigint;
        some_ids uuid[];
        ids uuid[] := array[erased];
        words text[];
        told jsonb := '{}';
    begin
        if erased is distinct from nullif(current_setting('app.user_id', true), '')::uuid then
            raise insufficient_privilege using message = 'only the user of the transaction can be erased';
        end if;
        perform set_config('app.erasing', 'on', true);
        -- Who has one of these locked is about to write, and waits for no row that is locked here yet.
        perform from conversations where user_id = erased order by id for update;
        perform from sessions where user_id = erased order by id for update;
        perform from outbox_events where user_id = erased order by id for update;
        select * into person from users where id = erased for update;
        if person.id is null then
            return null;
        end if;
        perform from tenants where id = person.tenant_id for update;
        alone := not exists (select from users where tenant_id = person.tenant_id and id <> erased);
        if alone then
            ids := ids || person.tenant_id;
        end if;

        -- What is theirs: how much, under which ids, and the words that would give them away elsewhere.
        for one in select * from erasable_tables() loop
            counted := 0;
            if one.of_user then
                execute format('select count(*), array_agg(%s) from %I where user_id = $1',
                               case when one.has_id then 'id' else 'null::uuid' end, one.name)
                    into counted, some_ids using erased;
                ids := ids || array_remove(some_ids, null);
            elsif one.of_tenant and one.name <> 'users' and alone then
                execute format('select count(*) from %I where tenant_id = $1', one.name) into counted using person.tenant_id;
            elsif one.name = 'users' or (one.name = 'tenants' and alone) then
                counted := 1;
            end if;
            told := told || jsonb_build_object(one.name, jsonb_build_object('deleted', counted));
        end loop;
        select array_agg(distinct lower(w)) into words
        from (select unnest(array[person.email, person.subject, person.id::text]) as w
              union all
              (select left(text, 60) from messages where user_id = erased and role = 'user' and length(text) >= 30
               order by created_at desc limit 200)) as given
        where length(w) >= 6;

        delete from users where id = erased;
        if alone then
            delete from tenants where id = person.tenant_id;
        else  -- a tenant that a first login made is called by its first user's address
            update tenants set name = id::text
            where id = person.tenant_id and length(person.email) > 0 and strpos(lower(name), lower(person.email)) > 0;
        end if;

        -- What an admin looked at stays noted, without who it was.
        update access_log set actor = 'erased' where length(person.email) > 0 and strpos(lower(actor), lower(person.email)) > 0;
        get diagnostics counted = row_count;
        told := jsonb_set(told, '{access_log,anonymised}', to_jsonb(counted));

        -- Every row of every table: ids in all of them, words in those that belong to nobody. What another customer wrote is theirs, and
        -- the knowledge base is published.
        for one in select * from erasable_tables() loop
            execute format(
                'select count(*) from %I x where %s or (%s and (
                    exists (select from unnest($2) w where strpos(%s, w) > 0)
                    or exists (select from regexp_matches(%s, ''[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'', ''g'') m
                               where m[1]::uuid in (select unnest($1)))))',
                one.name, one.has_ids,
                case when one.name in ('brain_entries', 'brain_terms') then 'false' when one.of_user then 'x.user_id is null'
                     else 'true' end,
                one.all_text, one.all_text)
                into counted using ids, words;
            told := jsonb_set(told, array[one.name, 'left'], to_jsonb(counted));
        end loop;
        perform set_config('app.erasing', '', true);
        return jsonb_build_object('issuer', person.issuer, 'subject', person.subject, 'tables', told);
    end $$
"""

# The tables, found in the catalogue so that a new one cannot be forgotten: whose their rows are, the condition that one of the ids `$1`
# stands in a column, and all their text. Left out is what follows from the same row (search words, vectors).
ERASABLE_TABLES = """
    create function erasable_tables() returns table (
        name name, of_user boolean, of_tenant boolean, has_id boolean, has_ids text, all_text text)
    language sql stable set search_path = public, pg_temp
    as $$
        select c.relname,
               bool_or(a.attname = 'user_id'),
               bool_or(a.attname = 'tenant_id' and t.typname = 'uuid'),
               bool_or(a.attname = 'id' and t.typname = 'uuid'),
               coalesce(string_agg(format('x.%I in (select unnest($1))', a.attname), ' or ') filter (where t.typname = 'uuid'), 'false'),
               coalesce('lower(concat_ws('' '', ' || string_agg(format('x.%I::text', a.attname), ', ')
                   filter (where t.typcategory not in ('N', 'B', 'D', 'T') and t.typname not in ('uuid', 'vector')) || '))', '''''')
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
        join pg_type t on t.oid = a.atttypid
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and c.relname <> 'alembic_version'
        group by c.relname order by c.relname
    $$
"""


def upgrade() -> None:
    connection = op.get_bind()
    tables = sa.inspect(connection).get_table_names()
    for table in sorted(set(tables) - {"alembic_version"}):
        op.execute(f"alter table {table} enable row level security")
        op.execute(f"alter table {table} force row level security")
        op.execute(
            f"create policy erasure_reads on {table} for select to memberintel_owner using ({ERASING})"
        )
    for table in LOCKED_BY_ERASURE:
        op.execute(
            f"create policy erasure_locks on {table} for update to memberintel_owner using ({ERASING}) with check (false)"
        )
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
    op.execute(ANALYZE_MEMBERS)
    op.execute("revoke all on function analyze_members from public")
    op.execute("grant execute on function analyze_members to memberintel_app")
    op.execute(SPENT_SINCE)
    op.execute("revoke all on function spent_since from public")
    op.execute("grant execute on function spent_since to memberintel_app, memberintel_jobs")
    op.execute(LIMIT_REACHED)
    op.execute("revoke all on function limit_reached from public")
    op.execute("grant execute on function limit_reached to memberintel_app, memberintel_jobs")
    op.execute(NOT_AS_EXPECTED)
    op.execute("revoke all on function not_as_expected from public")
    op.execute("grant execute on function not_as_expected to memberintel_app")
    for function in (ERASABLE_TABLES, ERASE_USER):
        op.execute(function.replace(":", "\\:"))
    op.execute("revoke all on function erase_user, erasable_tables from public")
    op.execute("grant execute on function erase_user to memberintel_app")

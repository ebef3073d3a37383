"""The group roles of a managed PostgreSQL, where no superuser can be had. On a laptop the launcher of the embedded server makes them."""

from __future__ import annotations

from sqlalchemy import Engine, text

from common.db import ROLE_NAMES

OWNER = ROLE_NAMES["owner"]


def make_roles(engine: Engine, superuser: str = "cloudsqlsuperuser") -> None:
    """Make the group roles and the extension where they are missing, and the owner role the owner of the database. Safe to repeat.

    `engine` logs in as a member of `superuser`, the role that may make others. From the next login on that account acts as the owner role,
    so that no account owns a table. Commits.
    """
    with engine.connect() as connection, connection.begin():
        # Membership does not hand down the right to make roles; acting as the role does.
        connection.execute(text(f"set local role {superuser}"))
        for role in ROLE_NAMES.values():
            if not connection.scalar(text("select 1 from pg_roles where rolname = :role"), {"role": role}):
                connection.execute(text(f"create role {role} nologin"))
        me, database = connection.execute(
            text("select quote_ident(session_user), quote_ident(current_database())")
        ).one()
        connection.execute(text(f"grant {OWNER} to {superuser}, {me} with inherit true, set true"))
        connection.execute(text("create extension if not exists vector"))
        connection.execute(text(f"alter database {database} owner to {OWNER}"))
        connection.execute(text(f"set local role {me}"))
        connection.execute(text(f"alter role {me} in database {database} set role to {OWNER}"))
    engine.dispose()

"""A COPY's rows arrive whole and in order, however they lie in what was read ahead."""

from __future__ import annotations

import io
from typing import Any

import pytest
import sqlalchemy as sa

from common.db import copy_out, transaction
from common.errors import Unavailable
from tests.conftest import Database


@pytest.mark.parametrize("lengths", ["0", "40", "8000 + mod(n, 400)", "mod(n * 7919, 20000)"])
def test_rows_of_any_length_arrive_whole(module_database: Database, lengths: str) -> None:
    engine = module_database.engine("app", pool_size=1)
    rows = 3000
    out = io.BytesIO()
    with transaction("app", source=engine) as connection:
        counted = copy_out(
            connection,
            f"copy (select n, repeat('x', {lengths}) from generate_series(1, {rows}) n) to stdout (format csv)",
            out,
        )
        # The connection is in step after it.
        assert connection.scalar(sa.text("select 1 + 1")) == 2
        wanted = connection.execute(
            sa.text(
                f"select n, length(repeat('x', {lengths})) as length from generate_series(1, {rows}) n order by n"
            )
        )
        expected = [(row.n, row.length) for row in wanted]
    found = [line.split(",") for line in out.getvalue().decode().splitlines()]
    assert counted == rows
    assert [(int(n), len(text.strip('"'))) for n, text in found] == expected


def test_a_copy_under_which_the_database_goes_away_is_unavailable(module_database: Database) -> None:
    class Cutting(io.BytesIO):
        def write(self, data: Any) -> int:
            if not self.tell():
                module_database.run(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = current_database() and pid <> pg_backend_pid()"
                )
            return super().write(data)

    def copy() -> None:
        with transaction("app", source=module_database.engine("app", pool_size=1)) as connection:
            sql = "copy (select repeat('x', 1000) from generate_series(1, 100000)) to stdout"
            copy_out(connection, sql, Cutting())

    with pytest.raises(Unavailable):
        copy()

"""The launcher of the embedded PostgreSQL: started by the first, stopped by the last, found again whatever happens to its folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from local import postgres


def answers(server: postgres.Server) -> bool:
    try:
        sa.create_engine(server.url("postgres"), poolclass=sa.NullPool).connect().close()
    except (sa.exc.DBAPIError, OSError):
        return False
    return True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part in (tmp_path, tmp_path.parent):
        part.chmod(0o755)
    return tmp_path


def test_the_last_to_leave_stops_the_server(folder: Path) -> None:
    with postgres.server(folder, durable=False) as first:
        with postgres.server(folder, durable=False) as second:
            assert second == first
        assert answers(first)
    assert not answers(first)


def test_a_server_is_found_again_when_its_folder_was_opened_or_closed_to_others(folder: Path) -> None:
    folder.chmod(0o700)
    try:
        with postgres.server(folder, durable=False) as server:
            folder.chmod(0o755)
            with postgres.server(folder, durable=False) as again:
                assert again == server
        assert not answers(server)
    finally:
        postgres.remove(folder)


def test_a_killed_process_leaves_data_that_the_next_one_opens(folder: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from local import postgres\n"
        "with postgres.server(Path(sys.argv[1])) as server:\n"
        "    postgres.create_database(server)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-c", code, str(folder)], check=False, env={**os.environ, "PYTHONPATH": str(root)}
    )
    with postgres.server(folder) as server:
        assert postgres.create_database(server) is False, "the database of the killed process is there"
    assert not answers(server)


def test_removing_takes_the_data(folder: Path) -> None:
    with postgres.server(folder, durable=False) as server:
        postgres.create_database(server)
    postgres.remove(folder)
    with postgres.server(folder, durable=False) as server:
        assert postgres.create_database(server) is True


def test_a_throw_away_server_leaves_nothing_behind() -> None:
    with postgres.throw_away() as server:
        data = postgres._cluster(server.folder)
        assert (data / "postmaster.pid").exists()
    assert not data.exists()
    assert not server.folder.exists()

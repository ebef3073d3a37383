"""PostgreSQL is restarted in the middle of a turn, as an operator does it and as a crash does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from common.migrations import run as migrations
from local import postgres
from local.issuer import Issuer
from tests.conftest import Database
from tests.functions.conftest import System, running_system
from tests.functions.scripted import play
from tests.functions.site import load_small_site
from tests.functions.test_nothing_is_lost import LIST_PLANS, said, snapshots, turns, waiting


@pytest.fixture
def own_system(
    tmp_path: Path, issuer: tuple[Issuer, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[System]:
    """A system on a server of its own, which a test may restart. Its data is durable: what was committed must survive."""
    for part in (tmp_path, tmp_path.parent):
        part.chmod(0o755)
    with postgres.server(tmp_path) as server:
        postgres.create_database(server)
        migrations.migrate(sa.create_engine(server.url(role="memberintel_owner"), poolclass=sa.NullPool))
        database = Database(server, postgres.DATABASE)
        yield from running_system(database, issuer, monkeypatch)
        database.dispose()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restarted", "crashed"])
def test_a_turn_outlives_the_servers_restart(
    own_system: System, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    system = own_system
    load_small_site(system.database, system.owner)

    def restart() -> None:
        system.database.superuser.dispose()
        postgres.restart(system.database.server.folder, how)

    play(monkeypatch, [restart, LIST_PLANS], [restart, "Two ", "plans."])
    answer = system.chat("plans?").json
    assert (answer["status"], answer["text"]) == ("complete", "Two plans.")
    assert not answer["tool_calls"][0]["is_error"]
    assert turns(system) == [("complete", None)]
    assert said(system) == [("user", "plans?", "complete"), ("assistant", "Two plans.", "complete")]
    assert waiting(system) == 1
    restart()
    system.deliver_all()
    assert (snapshots(system), waiting(system)) == (1, 0)
    assert system.database.scalar("select count(*) from usage_charges where state <> 'settled'") == 0


@pytest.mark.parametrize("job", ["relay_events", "backfill_wrap_ups", "nightly_refresh"])
def test_a_job_that_meets_a_connection_from_before_the_restart_asks_to_be_called_again(
    own_system: System, job: str
) -> None:
    """Scheduler calls again after a 503; the second call finds a fresh connection."""
    system = own_system
    assert system.internal(job, {}).status_code == 200
    system.database.superuser.dispose()
    postgres.restart(system.database.server.folder)
    assert [system.internal(job, {}).status_code for _ in range(2)] == [503, 200]


def test_a_reader_does_not_notice_a_restart(own_system: System) -> None:
    system = own_system
    brain, headers = system.client("brain"), system.token(system.owner)
    assert brain.get("/v1/sites", headers=headers).status_code == 200
    system.database.superuser.dispose()
    postgres.restart(system.database.server.folder)
    assert brain.get("/v1/sites", headers=headers).status_code == 200


def test_what_a_crash_takes_back_of_a_consumers_work_is_done_again(
    own_system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = own_system
    load_small_site(system.database, system.owner)
    play(monkeypatch, [LIST_PLANS], ["Two plans."])
    system.chat("plans?")
    assert waiting(system) == 1
    system.deliver_all()
    assert (snapshots(system), waiting(system)) == (1, 0)
    system.database.superuser.dispose()
    postgres.restart(system.database.server.folder, signal.SIGQUIT)
    # Its commit did not wait for the disk: all of it is there, or nothing.
    assert (snapshots(system), waiting(system)) in ((1, 0), (0, 1))
    system.database.run(
        "update outbox_events set created_at = now() - interval '1 hour', published_at = now() - interval '11 minutes'"
        " where type = 'tool-results'"
    )
    for _ in range(2):  # the first finds its connection gone
        system.internal("relay_events", {})
    system.deliver_all()
    assert (snapshots(system), waiting(system)) == (1, 0)

"""Some hundred turns on one `chat` process leave nothing behind: no connection, thread or lock, and hardly any memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from local.issuer import ISSUER, Issuer
from tests.conftest import Database, Person, add_person
from tests.contract.deployed import settings, trusted, until
from tests.e2e.chaos import Chat, Load, Model
from tests.functions.conftest import System, running_system
from tests.functions.site import load_small_site
from tests.stubs.anthropic_server import scripted

pytestmark = pytest.mark.slow
CUSTOMERS, WARM, MORE = 8, 15, 36
# What allocators keep of so many turns; a turn that left its transcript or its context behind would take a hundred times as much.
MOST_MEGABYTES = 12
BESIDE = 5  # connections of the test itself, which gives feedback and deletes
# The server's pool, that of the tools, the main thread, and what libraries keep.
MOST_THREADS = 2 * CUSTOMERS + 4
HELD = """
    select count(*) as connections, count(*) filter (where state <> 'idle') as busy,
           (select count(*) from pg_locks where locktype = 'advisory') as locks
    from pg_stat_activity where datname = current_database() and application_name = 'memberintel-app'
"""


@pytest.fixture
def trust(tmp_path: Path) -> Iterator[tuple[Issuer, str]]:
    with trusted(tmp_path) as made:
        yield made


@pytest.fixture
def system(
    database: Database, trust: tuple[Issuer, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[System]:
    yield from running_system(database, trust, monkeypatch)


@dataclass(frozen=True)
class Held:
    """What a process holds between turns: no statement, and the threads of the pools alone."""

    megabytes: float
    threads: int
    connections: int
    busy: int
    locks: int


def test_many_turns_leave_nothing_behind(system: System, trust: tuple[Issuer, str], tmp_path: Path) -> None:
    people = [add_person(system.database, f"{n}@demo.example", issuer=ISSUER) for n in range(CUSTOMERS)]
    for person in people:
        load_small_site(system.database, person)
    with scripted() as provider:
        provider.answer = Model(pace=0)
        more = {
            "ANTHROPIC_API_KEY": "sk-test",
            "ANTHROPIC_BASE_URL": provider.url,
            "MEMBERINTEL_REQUESTS_PER_MINUTE": "100000",
            "MEMBERINTEL_POOL_SIZE": str(CUSTOMERS),
            "THREADS": str(CUSTOMERS),
        }
        chat = Chat(settings(system.database, trust, **more), tmp_path)
        chat.start()
        try:
            talk(system, chat, people, range(WARM))
            before = held(chat, system.database)
            talk(system, chat, people, range(WARM, WARM + MORE))
            after = held(chat, system.database)
        finally:
            chat.kill()
    assert after.locks == 0
    assert after.connections <= CUSTOMERS + BESIDE
    assert after.megabytes - before.megabytes < MOST_MEGABYTES, (before, after)


def talk(system: System, chat: Chat, people: list[Person], turns: range) -> None:
    """These turns of each customer, all customers at once; every answer is whole at the first attempt."""
    load = Load(system, chat)
    for customer in load.run(people, turns):
        customer.join()
    assert not load.failures, load.failures
    assert load.ledger.retries == 0
    assert {answered.status for answered in load.ledger.answered} == {"complete"}


def held(chat: Chat, database: Database) -> Held:
    """What the process holds once its last turn has ended."""

    def look() -> Held | None:
        status = Path(f"/proc/{chat.worker}/status").read_text()
        numbers = {name: int(value) for name, value in re.findall(r"(VmRSS|Threads):\s+(\d+)", status)}
        (row,) = database.rows(HELD)
        found = Held(numbers["VmRSS"] / 1024, numbers["Threads"], row.connections, row.busy, row.locks)
        return found if found.busy == 0 and found.threads <= MOST_THREADS else None

    return until(look, 20)

"""The nightly run among 4.5 million retrieval events: the roll-up of a night, and what the purge of a day does to chat's inserts.

python -m benchmarks.nightly [--quick] [--days 90] [--answers 3334] [--candidates 15] [--rounds 20] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import statistics
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Engine

from benchmarks import report
from benchmarks.report import Row
from common.config import Settings
from common.db import make_engine, user_transaction
from common.jobs import Run, Step, run_job
from common.knowledge.performance import roll_up_log
from common.knowledge.retrieval_log import log_retrieval
from common.knowledge.search import Candidate
from common.migrations import run as migrations
from common.retention import purge_retrieval_events
from local import postgres

END = datetime(2026, 6, 1, tzinfo=UTC)
ENTRIES, USERS = 500, 50
DAY = timedelta(days=1)


@contextlib.contextmanager
def filled(days: int, answers: int, candidates: int) -> Iterator[tuple[Settings, postgres.Server]]:
    """A durable server with `days` days up to END, each with `answers` answers of `candidates` candidates, one in twenty with feedback."""
    with postgres.throw_away(durable=True) as server:
        postgres.create_database(server, "bench")
        migrations.migrate(sa.create_engine(server.url("bench", "memberintel_owner"), poolclass=sa.NullPool))
        engine = sa.create_engine(server.url("bench"))
        with engine.begin() as connection:
            for sql in _FILL:
                connection.execute(
                    sa.text(sql),
                    {
                        "end": END,
                        "days": days,
                        "answers": answers,
                        "candidates": candidates,
                        "users": USERS,
                        "entries": ENTRIES,
                    },
                )
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text("vacuum analyze"))
        engine.dispose()
        yield Settings(database_url=server.url("bench")), server


_FILL = [
    "set local session_replication_role = replica",  # the rows fit together by their making; checking each takes minutes
    "insert into tenants (id, name, tier) select cast(md5('t' || n) as uuid), 't', 'pro'"
    " from generate_series(1, cast(:users as int)) n",
    """insert into users (id, tenant_id, email, issuer, subject)
        select cast(md5('u' || n) as uuid), cast(md5('t' || n) as uuid), 'u' || n, 'bench', 'u' || n
        from generate_series(1, cast(:users as int)) n""",
    """insert into conversations (id, user_id, title, created_at, last_turn_at)
        select cast(md5('c' || n) as uuid), cast(md5('u' || n) as uuid), 'c', :end, :end from generate_series(1, cast(:users as int)) n""",
    """insert into sessions (id, user_id, conversation_id, started_at, last_activity_at)
        select cast(md5('s' || n) as uuid), cast(md5('u' || n) as uuid), cast(md5('c' || n) as uuid), :end, :end
        from generate_series(1, cast(:users as int)) n""",
    """insert into messages (id, user_id, conversation_id, session_id, role, text, status, position, created_at)
        select cast(md5('m' || n) as uuid), cast(md5('u' || u) as uuid), cast(md5('c' || u) as uuid), cast(md5('s' || u) as uuid),
               'assistant', 'answer', 'complete', n, at
        from (select n, 1 + mod(n, cast(:users as int)) as u,
                     cast(:end as timestamptz) - (n + 1) * (interval '1 day' / cast(:answers as int)) as at
              from generate_series(0, cast(:days as int) * cast(:answers as int) - 1) n) as made""",
    """insert into retrieval_events (message_id, user_id, entry_id, rank, score, surfaced, cited, created_at)
        select m.id, m.user_id, cast(md5('e' || mod(m.position * 31 + r * r * 7, cast(:entries as int))) as uuid), r, 0.5, r <= 5, r <= 2,
               m.created_at at time zone 'UTC'
        from (select * from messages order by created_at) m, generate_series(1, cast(:candidates as int)) r""",
    """insert into message_feedback (message_id, user_id, helpful, created_at, updated_at)
        select id, user_id, mod(position, 3) > 0, created_at, created_at + interval '1 hour' from messages where mod(position, 20) = 0""",
]


def nightly(settings: Settings, source: Engine, now: datetime) -> float:
    """Seconds that the roll-up of a night takes."""
    report = run_job(
        "nightly_refresh", [Step("roll_up", roll_up_log)], now=now, config=settings, source=source
    )
    assert not report.failed, report.steps
    return float(report.steps[0]["seconds"])


class Chat:
    """Writes answers' candidates as chat does, and keeps how long each transaction took."""

    def __init__(self, app: Engine, owner: Engine, candidates: int) -> None:
        self._app = app
        with owner.begin() as connection:
            row = connection.execute(
                sa.text("select user_id, conversation_id, id from sessions limit 1")
            ).one()
        self._user, self._conversation, self._session = row
        self._trace = [_candidate(rank) for rank in range(1, candidates + 1)]
        self._position = 10**9

    def write(self) -> float:
        """Milliseconds of one transaction: a message and its candidates."""
        self._position += 1
        message = uuid.uuid4()
        began = time.perf_counter()
        with user_transaction(self._user, source=self._app) as connection:
            connection.execute(
                sa.text(
                    "insert into messages (id, user_id, conversation_id, session_id, role, text, status, position, created_at)"
                    " values (:id, :user_id, :c, :s, 'assistant', 'answer', 'complete', :position, :now)"
                ),
                {
                    "id": message,
                    "user_id": self._user,
                    "c": self._conversation,
                    "s": self._session,
                    "position": self._position,
                    "now": END,
                },
            )
            log_retrieval(
                connection,
                user_id=self._user,
                message_id=message,
                trace=self._trace,
                cited=frozenset(),
                created_at=END,
            )
        return 1000 * (time.perf_counter() - began)


def _candidate(rank: int) -> Candidate:
    entry = uuid.UUID(int=rank)
    return Candidate(entry, "d", "t", None, "", END, END, 0.5, rank, rank <= 5)


def purge(settings: Settings, now: datetime, beside: Connection) -> None:
    """Delete what is past its time at `now`. Runs in a process of its own, as in production; says through `beside` when it begins, and
    then what it did."""
    source = make_engine(settings, "sweep")
    source.connect().close()
    beside.send("begun")
    with contextlib.redirect_stdout(io.StringIO()):
        done = purge_retrieval_events(Run("nightly_refresh", now, settings, source, must_stop=lambda: False))
    beside.send(done)


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(values, n=20)[-1]


def measure_purge(settings: Settings, chat: Chat, days: int, rounds: int) -> dict[str, Any]:
    """Chat's inserts while `rounds` days are purged, one after the other, and undisturbed before and after each."""
    quiet: list[float] = []
    disturbed: list[float] = []
    seconds: list[float] = []
    for n in range(rounds):
        # The night at which the log's nth day is past its time.
        now = END - (days - 90) * DAY + (n + 1) * DAY
        quiet += [chat.write() for _ in range(50)]
        ours, theirs = multiprocessing.Pipe()
        purging = multiprocessing.get_context("fork").Process(target=purge, args=(settings, now, theirs))
        purging.start()
        theirs.close()  # so that its end is seen, should it die
        assert ours.recv() == "begun"
        began = time.perf_counter()
        while not ours.poll():
            disturbed.append(chat.write())
        seconds.append(round(time.perf_counter() - began, 2))
        done = ours.recv()
        purging.join()
        quiet += [chat.write() for _ in range(50)]
        assert done["deleted"], done
    return {
        "rows_a_day": done["deleted"],
        "seconds_a_day": statistics.median(seconds),
        "inserts": len(disturbed),
        "quiet_p50_p95_ms": [round(statistics.median(quiet), 2), round(p95(quiet), 2)],
        "disturbed_p50_p95_ms": [round(statistics.median(disturbed), 2), round(p95(disturbed), 2)],
        "ratio_of_p95": round(p95(disturbed) / p95(quiet), 2),
    }


def sizes(
    description: str | None, argv: list[str] | None, *, quick_days: int, **defaults: int
) -> argparse.Namespace:
    """The sizes that were asked for; with `--quick`, few days with few answers unless they are named."""
    arguments = report.parser(description)
    arguments.add_argument("--quick", action="store_true", help="few rows")
    for name, default in defaults.items():
        arguments.add_argument(f"--{name}", type=int, help=f"default: {default}")
    asked = arguments.parse_args(argv)
    small = {"days": quick_days, "answers": 100, "rounds": 2} if asked.quick else {}
    for name, default in {**defaults, **small}.items():
        if getattr(asked, name) is None:
            setattr(asked, name, default)
    return asked


def main(argv: list[str] | None = None) -> None:
    """Fill, measure, publish."""
    asked = sizes(__doc__, argv, days=90, answers=3334, candidates=15, rounds=20, quick_days=92)
    began = time.perf_counter()
    with filled(asked.days, asked.answers, asked.candidates) as (settings, _):
        print(f"filled in {time.perf_counter() - began:.0f} s", flush=True)
        with contextlib.redirect_stdout(io.StringIO()):
            sweep, app = (make_engine(settings, role) for role in ("sweep", "app"))
            first = nightly(settings, sweep, END - 6 * DAY + timedelta(hours=3))
            nights = [nightly(settings, sweep, END - n * DAY + timedelta(hours=3)) for n in range(5, -1, -1)]
            again = nightly(settings, sweep, END + timedelta(hours=4))
            chat = Chat(app, sa.create_engine(settings.database_url), asked.candidates)
            purges = measure_purge(settings, chat, asked.days, asked.rounds)
            sweep.dispose()
            app.dispose()
    print(f"purge of a day: {purges}", flush=True)
    events = f"{asked.days * asked.answers * asked.candidates:,} retrieval events"
    report.publish(
        [
            report.of(f"roll-up of a night, {events}", nights, "s", "≤ 1"),
            Row(f"roll-up of a night again, {events}", again, "s"),
            Row(f"roll-up of everything, {events}", first, "s"),
            Row("p95 of chat's inserts while a day is purged", purges["ratio_of_p95"], "×", "≤ 1.5"),
        ],
        asked.json,
    )


if __name__ == "__main__":
    main()

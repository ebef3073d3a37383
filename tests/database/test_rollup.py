"""The roll-up of the retrieval log, compared with a slow and obvious count, and the usage report."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.jobs import Report, Step, run_job
from common.knowledge.performance import _OPEN_DAYS, roll_up_log, usage_report
from tests.conftest import Database, add_person
from tests.rows import Candidate, add_answer, add_session, give_feedback

DAY0 = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def nightly(database: Database, now: datetime) -> Report:
    """The roll-up as the nightly run makes it."""
    step = Step("roll_up", roll_up_log)
    report = run_job(
        "nightly_refresh", [step], now=now, config=database.settings, source=database.engine("sweep")
    )
    assert not report.failed, report.steps
    return report


def counted(database: Database) -> dict[tuple[uuid.UUID, Any], tuple[int, ...]]:
    rows = database.rows(
        "select entry_id, cast(day as text) as day, retrieved, surfaced, cited, helpful from entry_performance"
    )
    return {(r.entry_id, r.day): tuple(r)[2:] for r in rows}


def obvious(database: Database) -> dict[tuple[uuid.UUID, Any], tuple[int, ...]]:
    """The same by one plain query over the whole log."""
    rows = database.rows("""
        select entry_id, coalesce(cast(cast(created_at as date) as text), 'infinity') as day, count(*) as retrieved,
               sum(cast(surfaced as int)) as surfaced, sum(cast(cited as int)) as cited,
               sum(case when cited and exists (
                   select from message_feedback f where f.message_id = e.message_id and f.helpful) then 1 else 0 end) as helpful
        from retrieval_events e group by grouping sets ((entry_id, cast(created_at as date)), (entry_id))
    """)
    return {(r.entry_id, r.day): tuple(r)[2:] for r in rows}


ENTRIES = [uuid.UUID(int=i + 1) for i in range(4)]
candidates = st.lists(
    st.builds(
        lambda entry, state: Candidate(entry, surfaced=state > 0, cited=state > 1),
        st.sampled_from(ENTRIES),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda c: c.entry_id,
)
# What happens, in order, with the hours that pass before it.
events = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.one_of(
            st.tuples(st.just("answer"), candidates),
            st.tuples(st.just("thumb"), st.tuples(st.integers(0, 50), st.sampled_from([True, True, False]))),
            st.tuples(st.just("night"), st.none()),
            st.tuples(st.just("past night"), st.integers(1, 5)),
        ),
    ),
    min_size=8,
    max_size=25,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events)
def test_the_counts_equal_a_plain_query_whatever_happened_in_whatever_order(
    module_database: Database, happened: list[Any]
) -> None:
    database = module_database
    database.run("truncate users, tenants, entry_performance, job_runs cascade")
    person = add_person(database, f"{uuid.uuid4()}@x.example")
    session = add_session(database, person, DAY0)
    answers: list[uuid.UUID] = []
    now = DAY0
    for hours, (kind, what) in happened:
        now += hours * HOUR
        if kind == "answer":
            answers.append(add_answer(database, person, session, now, what))
        elif kind == "thumb" and answers:
            give_feedback(database, person, answers[what[0] % len(answers)], now, helpful=what[1])
        elif kind == "night":
            nightly(database, now)
        elif kind == "past night":
            nightly(database, now - what * DAY)
    nightly(database, now + HOUR)
    assert counted(database) == obvious(database)


def test_only_days_that_are_not_final_are_counted_again(database: Database) -> None:
    person = add_person(database, "a@x.example")
    session = add_session(database, person, DAY0)
    entry = ENTRIES[0]
    for n in range(10):
        add_answer(database, person, session, DAY0 + n * DAY + HOUR, [Candidate(entry)])
    assert nightly(database, DAY0 + 9 * DAY + 3 * HOUR).steps[0]["rows"] == 10
    finals = database.rows("select day from entry_performance where final order by day")
    assert [r.day for r in finals] == [date(2026, 3, 1) + timedelta(days=n) for n in range(8)]
    # A mark on a final day's row is not written over, one on an open day's is.
    database.run("update entry_performance set retrieved = 100 where day <> 'infinity'")
    assert nightly(database, DAY0 + 9 * DAY + 4 * HOUR).steps[0]["rows"] == 2
    rows = database.rows("select retrieved from entry_performance where day <> 'infinity' order by day")
    assert [r.retrieved for r in rows] == [100] * 8 + [1, 1]


def test_three_missed_nights_are_made_up_for(database: Database) -> None:
    person = add_person(database, "a@x.example")
    session = add_session(database, person, DAY0)
    message = add_answer(database, person, session, DAY0 + HOUR, [Candidate(ENTRIES[0], cited=True)])
    nightly(database, DAY0 + DAY + 3 * HOUR)
    for n in range(1, 5):
        add_answer(database, person, session, DAY0 + n * DAY + 5 * HOUR, [Candidate(ENTRIES[0])])
    give_feedback(database, person, message, DAY0 + 2 * DAY, helpful=True)
    nightly(database, DAY0 + 5 * DAY + 3 * HOUR)
    assert counted(database) == obvious(database)
    assert counted(database)[ENTRIES[0], "infinity"] == (5, 5, 1, 1)


def test_late_feedback_reaches_a_final_day_and_can_be_taken_back(database: Database) -> None:
    person = add_person(database, "a@x.example")
    session = add_session(database, person, DAY0)
    message = add_answer(database, person, session, DAY0 + HOUR, [Candidate(ENTRIES[0], cited=True)])
    nightly(database, DAY0 + 10 * DAY)
    assert counted(database)[ENTRIES[0], "2026-03-01"] == (1, 1, 1, 0)
    give_feedback(database, person, message, DAY0 + 40 * DAY, helpful=True)
    assert nightly(database, DAY0 + 41 * DAY).steps[0]["late_feedback"] == 1
    assert counted(database)[ENTRIES[0], "2026-03-01"] == (1, 1, 1, 1)
    assert counted(database)[ENTRIES[0], "infinity"] == (1, 1, 1, 1)
    give_feedback(database, person, message, DAY0 + 42 * DAY, helpful=False)
    nightly(database, DAY0 + 43 * DAY)
    assert counted(database)[ENTRIES[0], "2026-03-01"] == (1, 1, 1, 0)
    assert counted(database)[ENTRIES[0], "infinity"] == (1, 1, 1, 0)


def test_a_day_that_the_purge_has_begun_is_not_recounted(database: Database) -> None:
    person = add_person(database, "a@x.example")
    session = add_session(database, person, DAY0)
    messages = [
        add_answer(database, person, session, DAY0 + n * HOUR, [Candidate(ENTRIES[0], cited=True)])
        for n in (1, 20)
    ]
    for message in messages:
        give_feedback(database, person, message, DAY0 + DAY, helpful=True)
    nightly(database, DAY0 + 5 * DAY)
    cut = DAY0 + 90 * DAY + 10 * HOUR
    database.run(
        "delete from retrieval_events where created_at < :at", at=(cut - 90 * DAY).replace(tzinfo=None)
    )
    give_feedback(database, person, messages[1], cut - HOUR, helpful=True)
    nightly(database, cut)
    nightly(database, DAY0 + 20 * DAY)
    assert counted(database)[ENTRIES[0], "2026-03-01"] == (2, 2, 2, 2)


def test_an_erased_users_answers_leave_the_days_that_are_open_and_stay_counted_in_final_ones(
    database: Database,
) -> None:
    person, other = add_person(database, "a@x.example"), add_person(database, "b@x.example")
    for who in (person, other):
        session = add_session(database, who, DAY0)
        add_answer(database, who, session, DAY0 + HOUR, [Candidate(ENTRIES[0])])
        add_answer(database, who, session, DAY0 + 9 * DAY, [Candidate(ENTRIES[1])])
    add_answer(database, person, add_session(database, person, DAY0), DAY0 + 9 * DAY, [Candidate(ENTRIES[2])])
    nightly(database, DAY0 + 9 * DAY + 3 * HOUR)
    database.run("delete from users where id = :id", id=person.user_id)
    nightly(database, DAY0 + 9 * DAY + 4 * HOUR)
    assert counted(database)[ENTRIES[0], "infinity"][0] == 2
    assert counted(database)[ENTRIES[1], "infinity"][0] == 1
    assert (ENTRIES[2], "infinity") not in counted(database)


def test_a_chat_that_writes_meanwhile_is_neither_held_up_nor_lost(database: Database) -> None:
    person = add_person(database, "a@x.example")
    session = add_session(database, person, DAY0)
    add_answer(database, person, session, DAY0, [Candidate(ENTRIES[0])])
    with database.superuser.connect() as writing, writing.begin():
        message = add_answer(database, person, session, DAY0 + HOUR)
        writing.execute(
            sa.text("insert into retrieval_events values (:m, :u, :e, 1, 0, true, false, :at)"),
            {"m": message, "u": person.user_id, "e": ENTRIES[0], "at": (DAY0 + HOUR).replace(tzinfo=None)},
        )
        nightly(database, DAY0 + DAY + 3 * HOUR)
        assert counted(database)[ENTRIES[0], "2026-03-01"][0] == 1
    nightly(database, DAY0 + DAY + 4 * HOUR)
    assert counted(database)[ENTRIES[0], "2026-03-01"][0] == 2


def test_the_planner_knows_how_many_events_a_day_has(database: Database) -> None:
    """Under row level security it looks at its statistics only for comparisons that leak nothing, and guesses one row for others."""
    person = add_person(database, "a@x.example")
    message = add_answer(database, person, add_session(database, person, DAY0), DAY0)
    database.run(
        "insert into retrieval_events select :m, :u, gen_random_uuid(), n, 0, true, true, timestamp '2026-03-01' + n * interval '1 hour'"
        " from generate_series(1, 2400) n",
        m=message,
        u=person.user_id,
    )
    database.run("analyze retrieval_events")
    days = {"first": date(2026, 3, 10), "last": date(2026, 3, 19), "last_final": date(2026, 3, 18)}
    with database.engine("sweep").begin() as connection:
        plan = connection.execute(sa.text(f"explain {_OPEN_DAYS.text}"), days).scalars().all()
    scan = next(line for line in plan if "on retrieval_events" in line)
    assert 200 < int(scan.split("rows=")[1].split()[0]) < 300, scan


def add_entry(database: Database, entry: uuid.UUID, title: str) -> None:
    database.run(
        "insert into brain_entries (id, tenant_id, collection, document, title, content, content_hash, created_at, updated_at)"
        " values (:id, 'global', 'articles', :title, :title, 'text', '', :at, :at)",
        id=entry,
        title=title,
        at=DAY0,
    )


def test_the_report_finds_each_kind_of_entry_and_tells_replaced_ones_apart(database: Database) -> None:
    person = add_person(database, "a@x.example")
    session = add_session(database, person, DAY0)
    never, outranked, uncited, unhelpful, helpful, replaced = (uuid.uuid4() for _ in range(6))
    for entry, title in zip(
        (never, outranked, uncited, unhelpful, helpful),
        ("never_retrieved", "outranked", "not_cited", "not_helpful", "helpful"),
        strict=True,
    ):
        add_entry(database, entry, title)
    shown = [
        Candidate(unhelpful, cited=True),
        Candidate(replaced, cited=True),
        Candidate(uncited),
        Candidate(outranked, surfaced=False),
    ]
    message = add_answer(database, person, session, DAY0 + HOUR, shown)
    give_feedback(database, person, message, DAY0 + HOUR, helpful=False)
    liked = add_answer(
        database, person, session, DAY0 + DAY, [Candidate(helpful, cited=True), Candidate(uncited)]
    )
    give_feedback(database, person, liked, DAY0 + DAY, helpful=True)
    nightly(database, DAY0 + 2 * DAY)
    with database.engine("admin_read").begin() as connection:
        report = usage_report(connection, now=DAY0 + 2 * DAY, days=30)
    assert {e["title"]: e["finding"] for e in report["entries"]} == {
        name: name for name in ("never_retrieved", "outranked", "not_cited", "not_helpful", "helpful")
    }
    assert report["entries"][0]["title"] == "not_helpful"
    assert report["entries"][0]["unhelpful"] == 1
    assert next(e for e in report["entries"] if e["title"] == "not_cited")["not_cited_rate"] == 1.0
    assert report["totals"] == {
        "retrieved": 6,
        "surfaced": 5,
        "cited": 3,
        "helpful": 1,
        "replaced_entries": 1,
    }
    assert [(t["day"], t["retrieved"], t["helpful"]) for t in report["trend"]] == [
        (date(2026, 3, 1), 4, 0),
        (date(2026, 3, 2), 2, 1),
    ]

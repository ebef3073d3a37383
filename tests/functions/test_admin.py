"""`admin`: who gets in, what the report says, and that each look is noted; and that no route of any function is left ungated."""

from __future__ import annotations

import base64
import csv
import importlib.util
import io
import json
import re
import uuid
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from werkzeug.test import Client, TestResponse

from common.config import settings
from common.http import Endpoint
from common.knowledge.embeddings import HashedEmbedder
from common.knowledge.search import vector_text
from functions.admin import charts
from local import cli, commands_warehouse
from local.app import ACCESS_PATH, FUNCTIONS, LocalApp, function_names
from local.dispatcher import Dispatcher
from local.issuer import ADMIN
from tests.functions.conftest import System
from tests.rows import Candidate, add_answer, add_session, give_feedback

PATHS = [
    "/admin",
    "/admin/v1/usage-report",
    "/admin/v1/triggers",
    "/admin/v1/cutover",
    "/admin/v1/retrieval?q=discount",
]
# What anybody may read without a token: what is the same for everybody.
PUBLIC = {
    ("brain", "/"),
    ("brain", "/console/<name>"),
    ("brain", "/console/sign-in.json"),
    ("brain", "/openapi.json"),
}


def look(system: System, path: str, **headers: str) -> TestResponse:
    assertion = {"Cf-Access-Jwt-Assertion": system.issuer.admin_assertion()}
    return system.client("admin").get(path, headers={**assertion, **headers})


def nightly(system: System, now: datetime | None = None) -> None:
    response = system.internal("nightly_refresh", {"now": (now or datetime.now(UTC)).isoformat()})
    assert response.status_code == 200, response.text


def add_entry(system: System, title: str, content: str = "How to give a discount") -> uuid.UUID:
    entry = uuid.uuid4()
    model = HashedEmbedder()
    (vector,) = model.embed([content], kind="document")
    system.database.run(
        "insert into brain_entries (id, tenant_id, collection, document, title, content, content_hash, embedding, embedding_model,"
        " created_at, updated_at) values (:id, 'global', 'articles', :title, :title, :content, '', cast(:vector as vector), :model,"
        " now(), now())",
        id=entry,
        title=title,
        content=content,
        vector=vector_text(vector),
        model=model.name,
    )
    return entry


def arranged(system: System) -> dict[str, uuid.UUID]:
    """Entries of each finding, as of now."""
    names = ("never_retrieved", "outranked", "not_cited", "not_helpful", "helpful")
    entries = {name: add_entry(system, name) for name in names}
    now = datetime.now(UTC)
    session = add_session(system.database, system.owner, now)
    shown = [
        Candidate(entries["not_helpful"], cited=True),
        Candidate(entries["not_cited"]),
        Candidate(entries["outranked"], surfaced=False),
    ]
    add_answer(system.database, system.owner, session, now, shown)
    liked = add_answer(
        system.database, system.owner, session, now, [Candidate(entries["helpful"], cited=True)]
    )
    give_feedback(system.database, system.owner, liked, now, helpful=True)
    return entries


@pytest.mark.parametrize("path", PATHS)
def test_without_a_token_it_is_401_with_a_customers_403_and_nothing_is_noted(
    system: System, path: str
) -> None:
    client = system.client("admin")
    token = system.issuer.customer_token(system.owner.email)
    assert client.get(path).status_code == 401
    assert client.get(path, headers={"Cf-Access-Jwt-Assertion": "nonsense"}).status_code == 401
    assert client.get(path, headers={"Cf-Access-Jwt-Assertion": token}).status_code == 403
    assert client.get(path, headers={"Authorization": f"Bearer {token}"}).status_code == 403
    other = system.issuer.admin_assertion("someone@demo.example")
    assert client.get(path, headers={"Cf-Access-Jwt-Assertion": other}).status_code == 403
    internal = system.issuer.internal_token()
    assert client.get(path, headers={"Cf-Access-Jwt-Assertion": internal}).status_code == 401
    assert system.database.scalar("select count(*) from access_log") == 0


@pytest.mark.parametrize("path", PATHS[1:])
def test_each_look_leaves_a_row_that_names_the_admin(system: System, path: str) -> None:
    assert look(system, path).status_code == 200
    (row,) = system.database.rows("select actor, action, details from access_log")
    assert row.actor == ADMIN
    assert row.action == path.split("?")[0].rsplit("/", 1)[-1]
    assert "discount" not in json.dumps(row.details)


def test_the_report_names_each_kind_of_entry_with_trend_and_totals(system: System) -> None:
    entries = arranged(system)
    nightly(system)
    report = look(system, "/admin/v1/usage-report").json
    assert {e["finding"]: e["entry_id"] for e in report["entries"]} == {n: str(i) for n, i in entries.items()}
    assert report["findings"] == dict.fromkeys(entries, 1)
    assert report["totals"] == {
        "retrieved": 4,
        "surfaced": 3,
        "cited": 2,
        "helpful": 1,
        "replaced_entries": 0,
    }
    (day,) = report["trend"]
    assert (day["retrieved"], day["helpful"]) == (4, 1)


@pytest.mark.parametrize(("path", "accept"), [("?format=csv", "*/*"), ("", "text/csv")])
def test_the_report_as_csv_is_safe_to_open(system: System, path: str, accept: str) -> None:
    entry = add_entry(system, '=HYPERLINK("http://x","y")')
    response = look(system, f"/admin/v1/usage-report{path}", Accept=accept)
    assert response.mimetype == "text/csv"
    assert "usage-report.csv" in response.headers["Content-Disposition"]
    (row,) = csv.DictReader(io.StringIO(response.text))
    assert (row["entry_id"], row["finding"]) == (str(entry), "never_retrieved")
    assert row["title"].startswith("'=")


@pytest.mark.parametrize("days", ["0", "-1", "x", "367", "9" * 40, "٣"])
def test_a_number_that_makes_no_sense_is_422(system: System, days: str) -> None:
    assert look(system, f"/admin/v1/usage-report?days={days}").status_code == 422


def test_triggers_show_value_and_threshold_of_the_last_night(system: System) -> None:
    assert look(system, "/admin/v1/triggers").json == {"assessed_at": None, "triggers": []}
    arranged(system)
    nightly(system)
    found = look(system, "/admin/v1/triggers").json
    rows = next(t for t in found["triggers"] if t["name"] == "cutover_rows_per_day")
    assert (rows["threshold"], rows["unit"], rows["state"]) == (50_000, "rows a day", "ok")
    assert found["assessed_at"]
    lines = list(csv.DictReader(io.StringIO(look(system, "/admin/v1/triggers?format=csv").text)))
    assert [line["name"] for line in lines] == [t["name"] for t in found["triggers"]]


def test_the_cutovers_status_names_both_legs(system: System) -> None:
    nightly(system)
    status = look(system, "/admin/v1/cutover").json
    assert (status["sink"], status["export"]) == ("postgres", False)
    assert [leg["name"] for leg in status["legs"]] == ["cutover_rows_per_day", "cutover_rollup_p95"]


def test_the_debug_search_shows_candidates_and_is_not_logged_as_retrieval(system: System) -> None:
    entry = add_entry(system, "Discounts")
    found = look(system, "/admin/v1/retrieval?q=discount").json
    assert [c["entry_id"] for c in found["candidates"]] == [str(entry)]
    assert found["candidates"][0]["rank"] == 1
    assert "content" not in found["candidates"][0]
    assert system.database.scalar("select count(*) from retrieval_events") == 0
    assert look(system, "/admin/v1/retrieval").status_code == 422


def test_its_address_leads_to_the_report_in_the_console(system: System) -> None:
    response = look(system, "/admin")
    assert (response.status_code, response.headers["Location"]) == (303, "/#/admin")


@pytest.mark.parametrize("scheme", charts.SCHEMES)
def test_the_report_brings_its_pictures_for_either_scheme(system: System, scheme: str) -> None:
    arranged(system)
    add_entry(system, "<script>alert(1)</script>")
    nightly(system)
    report = look(system, f"/admin/v1/usage-report?pictures={scheme}").json
    assert set(report["pictures"]) == {"funnel", "findings", "trend"}
    assert set(report["meanings"]) == set(report["findings"])
    pictures = [picture(address) for address in report["pictures"].values()]
    assert all(charts.SCHEMES[scheme][0] in svg for svg in pictures)
    assert look(system, "/admin/v1/usage-report?pictures=neon").status_code == 422


def picture(address: str) -> str:
    """The SVG behind an image's address."""
    assert address.startswith("data:image/svg+xml;base64,")
    return base64.b64decode(address.split(",", 1)[1]).decode()


def test_a_picture_has_neither_script_nor_address() -> None:
    day = {"day": datetime(2026, 5, 1).date(), **dict.fromkeys(charts.FUNNEL, 3)}
    totals = dict.fromkeys(charts.FUNNEL, 3)
    for address in (
        charts.trend([day], "light"),
        charts.trend([], "dark"),
        charts.funnel(totals, "light"),
        charts.findings({"outranked": 2}, "dark"),
    ):
        svg = picture(address)
        assert svg.startswith("<svg")
        assert "script" not in svg
        assert not re.search(r"(?:href|src)=|url\(|@import", svg)


def routes() -> list[tuple[str, Endpoint]]:
    """Every route of every function that there is."""
    found = []
    for name in function_names():
        spec = importlib.util.spec_from_file_location(f"route_of_{name}", FUNCTIONS / name / "main.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found += [(name, endpoint) for endpoint in module.endpoints.routes]
    return found


ROUTES = routes()
SERVICES = {"admin": "admin", "brain": "customer", "chat": "customer"}


@pytest.mark.parametrize(
    ("function", "endpoint"), ROUTES, ids=[f"{f} {e.method} {e.path}" for f, e in ROUTES]
)
def test_every_route_is_gated_or_on_the_short_public_list(function: str, endpoint: Endpoint) -> None:
    if (function, endpoint.path) in PUBLIC:
        assert (endpoint.gate, endpoint.method) == ("public", "GET")
    else:
        assert endpoint.gate == SERVICES.get(function, "internal")


@pytest.mark.parametrize(
    ("function", "endpoint"),
    [(f, e) for f, e in ROUTES if (f, e.path) not in PUBLIC],
    ids=[f"{f} {e.method} {e.path}" for f, e in ROUTES if (f, e.path) not in PUBLIC],
)
def test_every_gated_route_refuses_who_brings_no_token(
    system: System, function: str, endpoint: Endpoint
) -> None:
    path = re.sub(r"<[^>]+>", str(uuid.uuid4()), endpoint.path)
    response = system.client(function).open(path, method=endpoint.method)
    assert response.status_code == 401


def test_every_function_has_routes() -> None:
    assert {function for function, _ in ROUTES} == set(function_names())


def test_a_browser_signs_in_locally_as_behind_access(system: System) -> None:
    app = LocalApp(Dispatcher("", lambda: "", ()), system.issuer, 8080)

    def opened(assertion: str) -> int:
        client = Client(app)
        client.get(ACCESS_PATH, query_string={"assertion": assertion})
        return client.get("/admin/v1/triggers").status_code

    assert opened(system.issuer.admin_assertion()) == 200
    assert opened(system.issuer.customer_token(system.owner.email)) == 403
    assert opened("nonsense") == 401
    cookie = Client(app).get(ACCESS_PATH, query_string={"assertion": "x"}).headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/admin"} <= set(cookie.split("; "))


class Counting:
    """A warehouse that has so many rows a day."""

    def __init__(self, rows: dict[date, int]) -> None:
        self.rows = rows

    def rows_by_day(self, *_: object) -> dict[date, int]:
        return self.rows


def test_the_command_refuses_to_call_a_switch_safe_while_counts_differ(
    system: System, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {
        "RETRIEVAL_SINK": "both",
        "BIGQUERY_DATASET": "p.d",
        "ERASURE_LEDGER": str(tmp_path),
    }.items():
        monkeypatch.setenv(f"MEMBERINTEL_{name}", value)
    settings.cache_clear()
    yesterday = datetime.now(UTC) - timedelta(days=1)
    session = add_session(system.database, system.owner, yesterday)
    add_answer(system.database, system.owner, session, yesterday, [Candidate(uuid.uuid4())])
    check = ["cutover", "check", "--data", str(tmp_path)]
    for rows, code, said in [
        ({yesterday.date(): 1}, 0, "Switching is safe."),
        ({}, 1, "Switching is not safe."),
    ]:
        monkeypatch.setattr(commands_warehouse, "warehouse", lambda _config, rows=rows: Counting(rows))
        assert cli.main(check) == code
        assert said in capsys.readouterr().out
    assert system.database.scalar("select count(*) from access_log where action = 'cutover-check'") == 2


def test_the_commands_report_lists_entries_by_finding(
    system: System, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MEMBERINTEL_ERASURE_LEDGER", str(tmp_path))
    arranged(system)
    nightly(system)
    capsys.readouterr()
    assert cli.main(["usage-report", "--data", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 retrieved, 3 surfaced, 2 cited, 1 helpful"
    assert (
        "1/0/0/0  outranked" in lines[lines.index(next(x for x in lines if x.startswith("1 outranked"))) + 1]
    )
    assert cli.main(["export", "--data", str(tmp_path)]) == 1
    assert "MEMBERINTEL_BIGQUERY_DATASET" in capsys.readouterr().err

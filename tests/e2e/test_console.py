"""The console in a real browser, against the system as `memberintel run` starts it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect, sync_playwright

from tests.e2e.conftest import Running

pytestmark = pytest.mark.slow

OWNER, SECOND = "owner@demo.example", "second@demo.example"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
)
AXE = "axe-core@4.14.1"
PICTURES = Path("build/console")
"""Where the pictures of every view lie after a run, for whoever wants to look."""
VIEWS = ("chat", "wrap-ups", "brain", "snapshots", "usage", "data")
LOOKUP = "How many active members do I have?"
DECISION = (
    "We decided to raise the price of the Gold plan to 35 dollars from January on, because our costs rose and the"
    " yearly members asked for more live calls. We still need to write the announcement to all members."
)

Opener = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        pytest.skip("no Chromium is installed")
    expect.set_options(timeout=30_000)  # a limit for a busy machine, not a measurement
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=found, args=FLAGS.split())


@pytest.fixture
def opened(browser: Browser, running: Running) -> Iterator[Opener]:
    """Opens the console as somebody. A script error or a breach of the page's policy fails the test."""
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def open_page(
        email: str = OWNER,
        view: str = "chat",
        *,
        token: str | None = None,
        signed_in: bool = True,
        **options: Any,
    ) -> Page:
        context = browser.new_context(reduced_motion="reduce", **options)
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None)
        base = f"http://127.0.0.1:{running.port}/"
        if not signed_in:
            page.goto(f"{base}#/{view}")
            return page
        page.goto(f"{base}#token={running.token(email) if token is None else token}")
        if view != "chat":
            page.goto(f"{base}#/{view}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def ask(page: Page, message: str) -> None:
    """Send a message and wait until its answer is stored."""
    answers = page.locator("article.answer .thumbs button")
    before = answers.count()
    page.get_by_label("Your message").fill(message)
    page.keyboard.press("Enter")
    expect(answers).to_have_count(before + 2)
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def test_a_question_is_answered_with_how_and_why(opened: Opener) -> None:
    page = opened()
    expect(page).not_to_have_url(re.compile("token"))
    ask(page, LOOKUP)
    made = page.locator("details.made")
    made.locator("summary").click()
    expect(made).to_contain_text("Trends skill (high confidence)")
    expect(made).to_contain_text("query_kpi_trend")
    expect(made).to_contain_text("Offline model")
    expect(page).to_have_url(re.compile(r"#/chat/[0-9a-f-]{36}$"))
    current = page.get_by_role("complementary").locator("[aria-current=page]")
    expect(current).to_contain_text(LOOKUP)
    # The same after a reload, from the database.
    page.reload()
    expect(page.locator("article.answer")).to_have_count(1)
    expect(page.locator("details.made summary")).to_contain_text("Trends skill")


def test_what_was_recalled_is_shown(opened: Opener) -> None:
    page = opened()
    ask(page, LOOKUP)
    ask(page, "What do you make of the number you showed me earlier?")
    made = page.locator("details.made").nth(1)
    made.locator("summary").click()
    expect(made).to_contain_text("points at earlier talk")
    expect(made).to_contain_text(re.compile(r'\d{4}-\d\d-\d\d query_kpi_trend\(metric="active_members"'))


def test_a_thumb_is_kept_and_can_be_taken_back(opened: Opener) -> None:
    page = opened()
    ask(page, LOOKUP)
    thumb = page.get_by_role("button", name="This helped")
    thumb.click()
    expect(thumb).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(thumb).to_have_attribute("aria-pressed", "true")
    thumb.click()
    expect(thumb).to_have_attribute("aria-pressed", "false")


def test_text_is_shown_and_never_run(opened: Opener) -> None:
    page = opened()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    hostile = "<img src=x onerror=alert(1)> <script>alert(2)</script> [x](javascript:alert(3)) **bold**"
    ask(page, hostile)
    page.reload()
    expect(page.locator("article.question")).to_contain_text("<img src=x onerror=alert(1)>")
    expect(page.locator("main img, main script, main a[href^=javascript]")).to_have_count(0)
    assert dialogs == []


def test_an_answer_can_be_stopped(opened: Opener) -> None:
    page = opened()
    held: list[Route] = []
    page.route("**/chat", lambda route: held.append(route))  # never answered
    page.get_by_label("Your message").fill("Hello there")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("article.answer")).to_contain_text("Stopped. What was said until then is kept.")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    page.unroute_all(behavior="ignoreErrors")


def test_a_broken_connection_can_be_tried_again(opened: Opener) -> None:
    page = opened()
    start = {
        "type": "start",
        "messageId": str(uuid.uuid4()),
        "messageMetadata": {"conversation_id": str(uuid.uuid4())},
    }
    cut = (
        f'data: {json.dumps(start)}\n\ndata: {{"type":"text-delta","id":"text-1","delta":"Half an ans"}}\n\n'
    )
    bodies: list[Any] = []

    def break_off(route: Route) -> None:
        bodies.append(route.request.post_data_json)
        route.fulfill(status=200, content_type="text/event-stream", body=cut) if len(
            bodies
        ) == 1 else route.continue_()

    page.route("**/chat", break_off)
    page.get_by_label("Your message").fill(LOOKUP)
    page.keyboard.press("Enter")
    answer = page.locator("article.answer")
    expect(answer).to_contain_text("Half an ans")
    expect(answer).to_contain_text("The connection broke off.")
    answer.get_by_role("button", name="Try again").click()
    expect(answer).to_contain_text("ctive members")
    expect(answer).not_to_contain_text("Half an ans")
    expect(answer).not_to_contain_text("broke off")
    assert bodies[0] == bodies[1]


def test_a_quick_second_message_stays_in_the_conversation(opened: Opener) -> None:
    page = opened()
    held: list[Route] = []
    page.route(
        "**/v1/conversations/*?limit=1", lambda route: held.append(route)
    )  # the head is never read again
    ask(page, LOOKUP)
    with page.expect_request("**/chat") as second:
        ask(page, "And what did I ask first?")
    assert second.value.post_data_json["conversation_id"]
    page.unroute_all(behavior="ignoreErrors")


def test_a_refusal_gives_the_message_back(opened: Opener) -> None:
    page = opened()
    problem = {
        "type": "urn:memberintel:problem:limit-reached",
        "status": 429,
        "detail": "40 turns a day are used.",
    }

    def refuse(route: Route) -> None:
        route.fulfill(status=429, content_type="application/problem+json", body=json.dumps(problem))

    page.route("**/chat", refuse)
    page.get_by_label("Your message").fill("Hello there")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("40 turns a day are used.")
    expect(page.get_by_label("Your message")).to_have_value("Hello there")


def test_a_conversation_that_is_not_to_be_remembered_says_so(opened: Opener) -> None:
    page = opened()
    page.get_by_label("Remember this conversation").uncheck()
    ask(page, LOOKUP)
    expect(page.locator(".head")).to_contain_text("not remembered")
    expect(page.get_by_role("button", name="End and wrap up")).to_have_count(0)


def test_a_snapshot_is_shown_whole_and_can_be_deleted(opened: Opener) -> None:
    page = opened()
    ask(page, "Show me recent members")
    page.locator("details.made summary").click()
    page.reload()
    page.locator("details.made summary").click()
    page.locator("details.made a[href^='#/snapshots/']").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Site data: recent members")
    assert page.locator("table tbody tr").count() > 1
    page.get_by_role("button", name="Delete snapshot").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete snapshot").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Snapshots")


def test_deleting_a_conversation_asks_first_and_says_what_went(opened: Opener) -> None:
    page = opened()
    ask(page, LOOKUP)
    address = page.url
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("snapshots and wrap-ups go with it")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Delete conversation").click()
    expect(page.get_by_role("status")).to_contain_text("Deleted: 2 messages")
    page.goto(address)
    expect(page.get_by_role("alert")).to_have_text("There is no such conversation.")


def test_two_people_see_nothing_of_each_other(opened: Opener) -> None:
    mine = opened(OWNER)
    ask(mine, f"{LOOKUP} {uuid.uuid4().hex}")
    theirs = opened(SECOND)
    expect(theirs.get_by_role("complementary")).to_contain_text("No conversations yet.")
    theirs.goto(mine.url)
    expect(theirs.get_by_role("alert")).to_have_text("There is no such conversation.")
    theirs.goto(mine.url.split("#")[0] + "#/snapshots")
    expect(theirs.get_by_text("No snapshots yet")).to_be_visible()


def wait_for_wrap_up(running: Running, text: str) -> None:
    """Until the job, another process, has written it; a limit, not a measurement."""
    token, deadline = running.token(OWNER), time.monotonic() + 30
    while text not in json.dumps(running.call("GET", "/v1/session-logs", token=token)[1]):
        assert time.monotonic() < deadline, "no wrap-up came"
        time.sleep(0.1)


def test_a_wrap_up_leads_to_what_it_rests_on_and_can_be_corrected(opened: Opener, running: Running) -> None:
    page = opened()
    ask(page, DECISION)
    page.get_by_role("button", name="End and wrap up").click()
    expect(page.get_by_role("status")).to_contain_text("session is ending")
    wait_for_wrap_up(running, "raise the price of the Gold plan")
    page.get_by_role("link", name="Wrap-ups", exact=True).click()
    page.locator("a.card").filter(has_text="raise the price of the Gold plan").click()
    page.get_by_role("link", name="Message 1 that this rests on").first.click()
    expect(page.locator("article.pointed")).to_contain_text("We decided to raise the price")
    page.go_back()
    other = page.context.new_page()
    other.goto(page.url)  # a second tab has no token of its own
    expect(other.get_by_role("heading", level=1)).to_have_text("Sign in to begin")
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Summary").fill("The Gold plan costs 35 dollars from January on.")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".page")).to_contain_text("edited by you")
    expect(page.locator(".page")).to_contain_text("The Gold plan costs 35 dollars from January on.")
    page.get_by_role("button", name="Delete wrap-up").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete wrap-up").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Wrap-ups")


def test_an_edit_of_what_changed_meanwhile_is_refused_with_a_way_out(
    opened: Opener, running: Running
) -> None:
    page = opened(view="brain")
    article = page.get_by_role("article", name="SOUL")
    article.get_by_role("button", name=re.compile("(Write|Edit) SOUL")).click()
    token = running.token(OWNER)
    status, _ = running.call(
        "PUT", "/v1/brain/documents/soul", {"content": "Written elsewhere."}, token=token
    )
    assert status == 200
    article.get_by_role("textbox").fill("Written here.")
    article.get_by_role("button", name="Save").click()
    expect(article.get_by_role("alert")).to_contain_text("changed since you read it")
    article.get_by_role("button", name="Show it as it is now").click()
    expect(article).to_contain_text("Written elsewhere.")


def test_documents_are_written_and_restored(opened: Opener) -> None:
    page = opened(view="brain")
    article = page.get_by_role("article", name="BIBLE")
    for text in ("No discounts.", "Discounts in December only."):
        article.get_by_role("button", name=re.compile("(Write|Edit) BIBLE")).click()
        article.get_by_role("textbox").fill(text)
        article.get_by_role("button", name="Save").click()
        expect(article).to_contain_text(text)
    article.get_by_role("button", name="Earlier versions").click()
    article.locator("summary").first.click()
    article.get_by_role("button", name="Restore version 1 of BIBLE").click()
    expect(article).to_contain_text("No discounts.")
    expect(article).to_contain_text("Version 3")


def test_memories_are_added_changed_and_forgotten(opened: Opener) -> None:
    page = opened(SECOND, view="brain")
    expect(page.get_by_text("are part of the Pro plan")).to_be_visible()
    page.get_by_label("Something to remember").fill("Likes numbers on Mondays")
    page.get_by_role("button", name="Remember this").click()
    expect(page.get_by_role("heading", name="Memories (1 of 5)")).to_be_visible()
    page.get_by_role("button", name="Edit: Likes").click()
    page.get_by_label("Memory", exact=True).fill("Likes numbers on Fridays")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Forget: Likes numbers on Fridays").click()
    page.get_by_role("button", name="Forget it").click()
    expect(page.get_by_role("heading", name="Memories (0 of 5)")).to_be_visible()


def test_everything_can_be_taken_along(opened: Opener) -> None:
    page = opened(view="data")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download everything").click()
    document = json.loads(Path(waiting.value.path()).read_text())
    assert document["complete"] is True
    assert document["tables"]["users"][0]["email"] == OWNER


def test_erasing_names_what_goes_and_wants_a_word(opened: Opener) -> None:
    page = opened(view="data")
    page.get_by_role("button", name="Erase everything").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("conversations, snapshots, wrap-ups, memories, documents")
    button = dialog.get_by_role("button", name="Erase everything")
    expect(button).to_be_disabled()
    dialog.get_by_label("Type ERASE").fill("ERASE")
    expect(button).to_be_enabled()
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)


EXPIRED = "e30.eyJleHAiOjEsImVtYWlsIjoieCJ9.e30"


def test_a_sign_in_comes_back_to_the_view_it_was_asked_from(opened: Opener) -> None:
    page = opened(signed_in=False, view="usage")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to begin")
    expect(page.get_by_role("navigation").get_by_role("link")).to_have_count(0)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name=f"Sign in as {OWNER}").wait_for()
    asked = dict(parse_qsl(urlsplit(page.url).query))
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    page.get_by_role("button", name=f"Sign in as {OWNER}").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Usage")
    expect(page).to_have_url(re.compile(r"/#/usage$"))  # neither code nor state is left in it
    expect(page.locator("#account")).to_contain_text(OWNER)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("You are signed out")
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to begin")


def test_a_sign_in_that_has_run_out_is_renewed_where_one_was(opened: Opener) -> None:
    page = opened(view="usage")
    expect(page.get_by_role("heading", level=1)).to_have_text("Usage")
    page.evaluate("token => sessionStorage.setItem('memberintel.token', token)", EXPIRED)
    page.get_by_role("link", name="Snapshots").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Your sign-in has run out")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Somebody else, by e-mail address").fill(SECOND)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Snapshots")
    expect(page).to_have_url(re.compile(r"/#/snapshots$"))
    expect(page.locator("#account")).to_contain_text(SECOND)


def test_a_message_that_meets_a_sign_in_run_out_is_still_there_afterwards(opened: Opener) -> None:
    page = opened()
    page.get_by_label("Your message").fill(LOOKUP)
    page.evaluate("token => sessionStorage.setItem('memberintel.token', token)", EXPIRED)
    page.get_by_label("Your message").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Your sign-in has run out")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name=f"Sign in as {OWNER}").click()
    expect(page.get_by_label("Your message")).to_have_value(LOOKUP)
    ask(page, LOOKUP)
    page.get_by_role("link", name="New conversation").click()
    expect(page.get_by_role("heading", name="What would you like to know?")).to_be_visible()
    expect(page.get_by_label("Your message")).to_have_value("")


def test_a_sign_in_that_this_tab_did_not_ask_for_is_refused(opened: Opener, running: Running) -> None:
    page = opened(signed_in=False)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name=f"Sign in as {OWNER}").wait_for()
    page.goto(f"http://127.0.0.1:{running.port}/?code=stolen&state=another")
    expect(page.get_by_role("heading", level=1)).to_have_text("You are not signed in")
    expect(page.locator("main")).to_contain_text("not begun in this tab")
    expect(page).not_to_have_url(re.compile("code="))
    page.goto(f"http://127.0.0.1:{running.port}/?error=access_denied&state=another")
    expect(page.locator("main")).to_contain_text("not begun in this tab")
    assert not [url for url in sent if "/local/token" in url]


def test_a_code_is_of_no_use_without_its_verifier_and_for_another_sign_in(
    opened: Opener, running: Running
) -> None:
    for name, wrong in {"verifier": "no token came for it", "nonce": "made for another sign-in"}.items():
        page = opened(signed_in=False)
        page.get_by_role("button", name="Sign in").click()
        owner = page.get_by_role("button", name=f"Sign in as {OWNER}")
        owner.wait_for()
        page.evaluate(
            """name => {
                const asked = JSON.parse(sessionStorage.getItem("memberintel.sign-in"));
                sessionStorage.setItem("memberintel.sign-in", JSON.stringify({ ...asked, [name]: "x".repeat(43) }));
            }""",
            name,
        )
        owner.click()
        expect(page.locator("main")).to_contain_text(wrong)
        assert page.evaluate("sessionStorage.getItem('memberintel.token')") is None


def admin_report(page: Page, running: Running) -> None:
    """Open the report as `memberintel token --admin` says."""
    page.goto(running.command("token", "--admin", "--port", str(running.port)).stdout.strip())
    expect(page.get_by_role("heading", level=1)).to_have_text("How the knowledge base fares")


def test_an_admin_reads_the_report_with_its_charts(opened: Opener, running: Running) -> None:
    page = opened()
    ask(page, "How do I win back cancelled members?")
    running.command("trigger", "nightly_refresh", "--port", str(running.port))
    expect(page.get_by_role("link", name="Report")).to_have_count(0)
    admin_report(page, running)
    expect(page).to_have_url(re.compile("#/admin$"))
    expect(page.get_by_role("link", name="Report")).to_have_attribute("aria-current", "page")
    images = page.locator("figure img")
    expect(images).to_have_count(3)
    drawn = images.evaluate_all(
        "all => all.map(one => one.complete && one.naturalWidth > 0 && one.alt !== '')"
    )
    assert drawn == [True] * 3
    expect(page.locator("dl.tiles")).not_to_contain_text(re.compile("retrieved0"))
    expect(page.get_by_role("region", name="Table: Triggers")).to_contain_text("rows a day")
    page.get_by_role("button", name=re.compile("Show all")).click()
    assert page.get_by_role("region", name="Table: Entries").locator("tbody tr").count() > 20
    page.get_by_label("How far back").select_option("7")
    expect(page).to_have_url(re.compile("#/admin/7$"))
    expect(page.get_by_label("How far back")).to_have_value("7")


def test_the_report_is_not_for_customers(opened: Opener) -> None:
    page = opened(view="admin")
    expect(page.get_by_role("heading", level=1)).to_have_text("For admins")
    expect(page.get_by_role("link", name="Sign in as an admin")).to_have_attribute("href", "/admin")
    expect(page.get_by_role("link", name="Report")).to_have_count(0)


def test_the_last_answer_can_be_had_again_and_a_question_edited(opened: Opener) -> None:
    page = opened()
    ask(page, LOOKUP)
    ask(page, "list my plans")
    again = page.get_by_role("button", name="Answer again")
    expect(again).to_have_count(1)  # the end of the thread only
    again.click()
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.locator("article.answer")).to_have_count(2)
    expect(page.locator("article.answer").last).to_contain_text("Inner Circle")
    page.get_by_role("button", name=f"Edit: {LOOKUP}").click()
    page.get_by_label("Your message, edited").fill("How many new members do I have?")
    page.get_by_role("button", name="Ask again").click()
    expect(page.locator("article.answer .thumbs button")).to_have_count(2)
    expect(page.locator("article.answer")).to_contain_text("ew members")
    page.reload()
    expect(page.locator("article.question")).to_have_count(1)
    expect(page.locator("article.question")).to_contain_text("How many new members do I have?")
    expect(page.locator("article.answer")).to_have_count(1)
    # A question that came from the database can be edited as well, and Escape leaves it as it is.
    page.get_by_role("button", name="Edit: How many new").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Edit: How many new")).to_be_focused()


def test_the_keyboard_alone_is_enough(opened: Opener) -> None:
    page = opened()
    expect(page.get_by_role("heading", name="What would you like to know?")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.get_by_label("Your message").evaluate("one => one === document.activeElement"):
            break
    page.keyboard.type(LOOKUP)
    page.keyboard.press("Enter")
    expect(page.locator("article.answer .thumbs button")).to_have_count(2)
    expect(page.get_by_role("status")).to_contain_text("ctive members")
    expect(page.get_by_label("Your message")).to_be_focused()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm, which installs axe-core, is not there")
    folder = tmp_path_factory.mktemp("axe")
    subprocess.run(
        [npm, "install", "--silent", "--no-save", "--ignore-scripts", "--prefix", str(folder), AXE],
        check=True,
    )
    return (folder / "node_modules/axe-core/axe.min.js").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_every_view_is_accessible_and_fits(
    opened: Opener, running: Running, axe: str, scheme: str, width: int
) -> None:
    # The checks run as scripts in the page, which its policy rightly forbids: for them it is lifted.
    page = opened(color_scheme=scheme, viewport={"width": width, "height": 800}, bypass_csp=True)
    ask(page, LOOKUP)
    page.locator("details.made summary").click()
    page.add_script_tag(content=axe)
    found: list[str] = []

    def look(where: str) -> None:
        found.extend(problems(page, where))
        picture = PICTURES / f"{where.replace(' ', '-')}-{scheme}-{width}.png"
        page.screenshot(path=picture, full_page=True)
        assert picture.stat().st_size > 5_000

    look("a conversation")
    base = page.url.split("#")[0]
    for view in VIEWS:
        page.goto(f"{base}#/{view}")
        page.locator("main:not([aria-busy]) h1").wait_for()
        expect(page.locator(f"#views a[href='#/{view}']")).to_have_attribute("aria-current", "page")
        look(view)
    page.goto(f"{base}#/snapshots")
    page.locator("a.card").first.click()
    page.get_by_role("button", name="Delete snapshot").click()
    look("a snapshot with its dialog")
    admin_report(page, running)
    page.add_script_tag(content=axe)
    look("the report")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("button", name="Sign in").wait_for()
    look("signed out")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name=f"Sign in as {OWNER}").wait_for()
    page.add_script_tag(content=axe)
    look("the local sign-in page")
    assert found == []


def problems(page: Page, where: str) -> list[str]:
    """What is serious or critical by axe's rules, and whether anything is wider than the window."""
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    found = [
        f"{where}: {v['id']} at {v['nodes'][0]['target']}: {v['nodes'][0]['failureSummary']}"
        for v in result["violations"]
        if v["impact"] in ("serious", "critical")
    ]
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return found + ([f"{where}: {wide} px too wide"] if wide > 0 else [])

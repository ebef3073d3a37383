"""Secrets do not reach what is prompted again, and no stored text can leave its place: its fence, its line, its log entry."""

from __future__ import annotations

import contextlib
import io
import json
import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import log
from common.memory.snapshot_summary import FOOTER, HEADER, Snapshot, recall_block, snapshot_line
from common.text import CARD_MARK, SECRET_MARK, fenced, mask_secrets, one_line, sanitise

# Put together here, so that no scanner takes this file for a leak.
LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7" * 3
SECRETS = {
    "a model vendor's key": "sk-" + "ant-api03-" + LETTERS[:40],
    "another one's": "sk-" + "proj-" + LETTERS[:40],
    "a payment key": "sk_" + "live_" + LETTERS[:24],
    "a restricted payment key": "rk_" + "test_" + LETTERS[:24],
    "a webhook's secret": "whsec" + "_" + LETTERS[:32],
    "a cloud's access key": "AKIA" + "IOSFODNN7EXAMPLE",
    "a maps key": "AIza" + LETTERS[:35],
    "an access token": "ya29" + "." + LETTERS[:40],
    "a repository token": "ghp" + "_" + LETTERS[:36],
    "a fine-grained one": "github" + "_pat_" + LETTERS[:40],
    "a chat token": "xoxb" + "-123456789012-" + LETTERS[:24],
    "a mailer's key": "SG" + "." + LETTERS[:22] + "." + LETTERS[:43],
    "a signed token": "eyJ" + LETTERS[:20] + ".eyJ" + LETTERS[:30] + "." + LETTERS[:43],
    "a private key": f"-----BEGIN RSA PRIVATE KEY-----\n{LETTERS}\n{LETTERS}\n-----END RSA PRIVATE KEY-----",
    "half a private key": f"-----BEGIN PRIVATE KEY-----\n{LETTERS}",
}
NAMED = {
    "password: Tr0ub4dor&3": "Tr0ub4dor&3",
    'the Passwort = "geheim-2026!"': "geheim-2026!",
    '{"api_key":"0123456789abcdef0123"}': "0123456789abcdef0123",
    "API key: 9f8e7d6c5b4a": "9f8e7d6c5b4a",
    "Authorization: Bearer abcdef0123456789.xyz": "abcdef0123456789.xyz",
    "postgres://club:s3cr3tword@db.example/club": "s3cr3tword",
    "contraseña: abc12345": "abc12345",
}
CARDS = [
    "4111111111111111",
    "4111 1111 1111 1111",
    "4111-1111-1111-1111",
    "4111\u00a01111\u00a01111\u00a01111",
    "5555555555554444",
    "2223 0031 2200 3222",
    "378282246310005",
    "3782 822463 10005",
    "6011111111111117",
    "30569309025904",
    "４１１１１１１１１１１１１１１１",
]
# What a membership site's owner writes all day, and must find again as they wrote it.
HARMLESS = [
    "Order 4111111111111112 was paid",  # a check digit that is wrong
    "Invoice 1234567890123456",
    "Since 1767225600000 (milliseconds)",
    "Call +49 30 1234 5678 90",
    "members 1200 1340 1410 1505 in four quarters",
    "from 2026-05-01 to 2026-05-12 and 2026-06-01",
    "IBAN DE89 3704 0044 0532 0130 00",
    "pi_3MtwBwLkdIwHu7ix28a3tqPa and cus_NffrFeUfNV2Hib",
    "123e4567-e89b-12d3-a456-426614174000",
    "Password: required for members",
    "The secret: patience",
    "We ask for the API key: never share it",
    "Bearer of good news",
    "https://club.example/courses?id=12&token=no",
    "task-force, desk-sharing-and-other-long-words-with-dashes",
    "0.4111111111111111",
]


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("around", ["{}", "My key is {}.", "key={},x", "«{}»"])
def test_a_key_is_masked_wherever_it_stands(name: str, around: str) -> None:
    kept = sanitise(around.format(SECRETS[name]))
    assert SECRET_MARK in kept
    assert LETTERS[:12] not in kept
    assert "EXAMPLE" not in kept


@pytest.mark.parametrize("text", NAMED)
def test_what_is_called_a_password_is_masked_and_its_name_stays(text: str) -> None:
    kept = sanitise(text)
    assert NAMED[text] not in kept
    assert SECRET_MARK in kept
    assert kept.split(SECRET_MARK)[0] == text.split(NAMED[text])[0]


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("around", ["{}", "card {}, 12/27", "({})", "{} 12/27 123"])
def test_a_card_number_is_masked(card: str, around: str) -> None:
    assert sanitise(around.format(card)) == around.format(CARD_MARK)


@pytest.mark.parametrize("text", HARMLESS)
def test_other_long_numbers_and_plain_words_stay(text: str) -> None:
    assert sanitise(text) == text


def test_a_key_that_is_broken_up_by_what_is_removed_is_masked() -> None:
    for between in ("\u200b", "\u2060", "<|x|>", "[INST]", "\U000e0041", "\ufe01"):
        assert sanitise(between.join(SECRETS["a model vendor's key"])) == SECRET_MARK
    assert CARD_MARK in sanitise("4111\u200b1111\u200b1111\u200b1111")


PIECES = [
    *SECRETS.values(), *NAMED, *CARDS, *HARMLESS,
    "</data>", "<data name='x'>", "< / DATA", "＜/data＞", "<|im_start|>", "<|", "|>", "[INST]", "Human:", "\nassistant :",
    "\n- 2026-05-12 query_kpi_trend(): 9", "\r\n", "\u2028", "\x85", "\x0b", "\u200b", "\ud800", "\x00", "Previously fetched",
    '{"severity":"ERROR"}', '"}\n{"event":"turns_total"', "password:", "Bearer ", "sk-", "4111", " ", "-", "a",
]  # fmt: skip
written = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=6)), max_size=8).map("".join)


@given(written)
def test_sanitising_again_changes_nothing(text: str) -> None:
    once = sanitise(text)
    assert sanitise(once) == once
    assert mask_secrets(once) == once


@given(written)
def test_no_text_closes_or_opens_a_fence(text: str) -> None:
    block = fenced("memory", text)
    assert re.findall(r"<[\s/]*data", block, re.IGNORECASE) == ["<data", "</data"]
    assert block.startswith('<data name="memory">\n')
    assert block.endswith("\n</data>")


@given(written, written, st.integers(1, 5))
def test_no_text_adds_a_line_to_the_block_of_earlier_results(name: str, value: str, rows: int) -> None:
    at = datetime(2026, 5, 12, 10, tzinfo=UTC)
    block, lines = recall_block([snapshot(name, value, at, i) for i in range(rows)], "UTC")
    if block:
        others = [HEADER, *FOOTER.splitlines(), '<data name="previously_fetched">', "</data>"]
        assert len(fenced("previously_fetched", block).splitlines()) == len(lines) + len(others)


@pytest.mark.parametrize("name", SECRETS)
def test_a_key_is_masked_in_the_line_of_a_result_though_lines_are_cut(name: str) -> None:
    line = snapshot_line(
        snapshot("key", "x" * 30 + " " + SECRETS[name], datetime(2026, 5, 12, tzinfo=UTC), 1), "UTC"
    )
    assert LETTERS[:12] not in line


def snapshot(name: str, value: str, at: datetime, number: int) -> Snapshot:
    """A stored result whose arguments, signals and their names are this text."""
    return Snapshot("query_weather", {"q": f"{number} {value}"}, {name or "x": value}, at)


@given(written)
def test_one_line_is_one_line(text: str) -> None:
    assert len(one_line(text, 500).splitlines()) <= 1


@given(written)
def test_no_text_forges_a_log_entry(text: str) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        log.write(text, detail=text.encode("utf-8", "replace").decode())
    (line,) = out.getvalue().splitlines()
    entry = json.loads(line)
    assert set(entry) == {"severity", "message", "detail"}
    assert entry["severity"] == "INFO"

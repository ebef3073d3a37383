"""The page of versions says what the pins say."""

from __future__ import annotations

from tests.contract import compatibility


def test_the_page_is_current() -> None:
    assert compatibility.PAGE.read_text() == compatibility.page(), (
        "run: python -m tests.contract.compatibility"
    )


def test_each_test_that_it_names_is_there() -> None:
    for _name, _pin, test, _what in compatibility._PARTS:
        assert (compatibility.ROOT / "tests/contract" / test).exists(), test

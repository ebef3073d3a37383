"""One of a kind, whoever asks first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from common.once import once

ASKING = 8


def test_all_who_ask_at_the_same_moment_get_the_same() -> None:
    together, made = Barrier(ASKING), list[object]()

    @once
    def engine(role: str) -> object:
        made.append(object())
        return made[-1]

    def ask(_: int) -> object:
        together.wait(60)
        return engine("app")

    with ThreadPoolExecutor(ASKING) as threads:
        assert set(threads.map(ask, range(ASKING))) == {engine("app")}
    assert engine("jobs") != engine("app")
    assert len(made) == 2


def test_nobody_else_gets_in_while_one_is_made() -> None:
    free = list[bool]()

    @once
    def client() -> str:
        with ThreadPoolExecutor(1) as another:
            free.append(another.submit(client._making.acquire, blocking=False).result())
        return "made"

    assert client() == "made"
    assert free == [False]


def test_it_is_made_again_after_it_was_forgotten() -> None:
    made = list[int]()

    @once
    def engine() -> int:
        made.append(1)
        return len(made)

    assert (engine(), engine()) == (1, 1)
    engine.cache_clear()
    assert engine() == 2

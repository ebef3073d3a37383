"""The ledger as a file and as an object in Cloud Storage: nothing noted is lost, and reading it is cheap."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from common.erasure_ledger import FileStore, Ledger, ObjectStore, Store
from common.errors import Unavailable
from tests.stubs.storage_server import StorageServer

AT = datetime(2026, 5, 12, 10, tzinfo=UTC)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[StorageServer]:
    with StorageServer() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
        yield server


@pytest.fixture(params=["file", "object"])
def store(request: pytest.FixtureRequest, tmp_path: Path, bucket: StorageServer) -> Store:
    return (
        FileStore(tmp_path / "deep" / "ledger.jsonl")
        if request.param == "file"
        else ObjectStore("b", "ledger.jsonl")
    )


def test_who_was_erased_is_found_by_issuer_and_subject_alone(store: Store) -> None:
    kept = Ledger(store)
    assert kept.erased_at("i", "s") is None
    kept.add("i", "s", AT)
    kept.add("i", "t", AT)
    kept.add("i", "s", AT + timedelta(days=1))
    for reader in (kept, Ledger(store)):
        assert reader.erased_at("i", "s") == AT + timedelta(days=1)
        assert reader.erased_at("i", "t") == AT
        assert reader.erased_at("is", "") is None
        assert reader.erased_at("other", "s") is None
    assert len(store.read().splitlines()) == 4
    assert b'"s"' not in store.read()


def test_the_same_person_has_another_mark_in_another_ledger(tmp_path: Path) -> None:
    lines = []
    for name in ("one", "two"):
        Ledger(FileStore(tmp_path / name)).add("i", "s", AT)
        lines.append((tmp_path / name).read_text().splitlines()[1])
    assert lines[0] != lines[1]


def test_writers_at_once_lose_nothing(store: Store) -> None:
    def write(number: int) -> None:
        Ledger(store).add("i", str(number), AT)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(Ledger(store).erased_at("i", str(n)) == AT for n in range(4))


def test_a_writer_that_was_overtaken_writes_again(bucket: StorageServer) -> None:
    store = ObjectStore("b", "ledger.jsonl")
    Ledger(store).add("i", "first", AT)

    def overtake() -> None:
        bucket.before_write = lambda: None
        Ledger(ObjectStore("b", "ledger.jsonl")).add("i", "faster", AT)

    bucket.before_write = overtake
    Ledger(store).add("i", "slower", AT)
    assert [Ledger(store).erased_at("i", s) for s in ("first", "faster", "slower")] == [AT] * 3


def test_a_changed_file_is_read_at_once_and_an_object_within_a_minute(
    bucket: StorageServer, tmp_path: Path
) -> None:
    file = FileStore(tmp_path / "ledger")
    reader = Ledger(file)
    assert reader.erased_at("i", "s") is None
    Ledger(file).add("i", "s", AT)
    assert reader.erased_at("i", "s") == AT

    time = [0.0]
    reader = Ledger(ObjectStore("b", "o"), monotonic=lambda: time[0])
    assert [reader.erased_at("i", "s") for _ in range(5)] == [None] * 5
    assert bucket.reads == 1
    Ledger(ObjectStore("b", "o")).add("i", "s", AT)
    assert reader.erased_at("i", "s") is None
    assert reader.erased_at("i", "s", fresh=True) == AT
    time[0] = 61.0
    assert reader.erased_at("i", "s") == AT


def test_while_it_cannot_be_read_what_was_read_before_holds(bucket: StorageServer) -> None:
    time = [0.0]
    reader = Ledger(ObjectStore("b", "o"), monotonic=lambda: time[0])
    reader.add("i", "s", AT)
    assert reader.erased_at("i", "s") == AT
    bucket.down, time[0] = True, 61.0
    assert reader.erased_at("i", "s") == AT
    for attempt in (
        lambda: reader.erased_at("i", "s", fresh=True),
        lambda: reader.add("i", "t", AT),
        lambda: Ledger(ObjectStore("b", "o")).erased_at("i", "s"),
    ):
        with pytest.raises(Unavailable):
            attempt()


def test_a_line_that_was_cut_off_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    Ledger(FileStore(path)).add("i", "s", AT)
    path.write_text(path.read_text() + '{"who": "ab')
    Ledger(FileStore(path)).add("i", "t", AT)
    assert [Ledger(FileStore(path)).erased_at("i", s) for s in ("s", "t")] == [AT, AT]

"""Every subcommand explains itself."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from local.cli import main, parser
from local.commands_run import _delete_data
from local.dispatcher import Dispatcher


def subcommands() -> list[str]:
    (action,) = (a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    return sorted(action.choices)


@pytest.mark.parametrize("name", subcommands())
def test_every_subcommand_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([name, "--help"])
    assert exit_.value.code == 0
    assert f"memberintel {name}" in capsys.readouterr().out


def test_an_unknown_subcommand_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["fly"])
    assert exit_.value.code == 2
    assert "invalid choice" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--port", "99999"],
        ["run", "--port", "-1"],
        ["run", "--port", "0"],
        ["trigger", "relay_events", "--port", "x"],
        ["usage-report", "--days", "0"],
        ["usage-report", "--days", "99999999"],
        ["export", "--now", "yesterday"],
        ["export", "--now", "2026-01-01T00:00:00"],
        ["route"],
        ["route", "a query", "--file", "and a file"],
    ],
)
def test_an_argument_out_of_range_is_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["run"], ["token", "--user", "a@b.example"], ["migrate"]])
def test_a_data_folder_that_cannot_be_is_one_clear_line(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main([*command, "--data", str(file)]) == 1
    assert capsys.readouterr().err == f"memberintel {command[0]}: File exists: {file}\n"


def test_fresh_deletes_only_what_the_system_made(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").touch()
    (tmp_path / "photo.jpg").touch()
    for name in ("issuer.pem", "issuer.jwks.json", "erasures.jsonl", "postgres.log"):
        (tmp_path / name).touch()
    _delete_data(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"thesis", "photo.jpg", "postgres.lock"}
    assert (tmp_path / "thesis" / "chapter.txt").exists()


@pytest.mark.parametrize(
    "message",
    [
        b"[]",
        b"{",
        b"null",
        b'{"type": "tool-results"}',
        b'{"type": "tool-results", "id": {"a": 1}, "version": 1}',
        b'{"type": "tool-results", "id": "1", "version": 1}',
        b'{"type": "tool-results", "id": "00000000-0000-0000-0000-000000000001", "version": [1]}',
        b'{"type": "session-ended", "id": "00000000-0000-0000-0000-000000000001", "version": 1}',
        b"[" * 9000,
    ],
)
def test_the_dispatcher_takes_only_events(message: bytes) -> None:
    with pytest.raises(ValueError):
        Dispatcher("http://127.0.0.1:1", str, ()).publish("tool-results", message)


def test_a_query_is_routed_without_a_database(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["route", "How many active members do I have?"]) == 0
    routed = json.loads(capsys.readouterr().out)
    assert (routed["route"], routed["confidence"]) == ("kpi", "high")
    assert routed["reasons"]


def test_a_file_of_queries_is_routed_with_its_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "queries.jsonl"
    lines = [
        {"q": "How many active members do I have?", "route": "kpi"},
        {"q": "Should I raise my prices?", "route": "advisor"},
        {"q": "What did you show me last time?", "route": "kpi"},
    ]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n", encoding="utf-8")
    assert main(["route", "--file", str(file)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["accuracy"], report["correct"], report["total"]) == (0.6667, 2, 3)
    assert [row["correct"] for row in report["queries"]] == [True, True, False]


@pytest.mark.parametrize("line", ["{", "[]", '{"q": 5, "route": "kpi"}', '{"q": "x"}', "\x80"])
def test_a_line_that_is_no_query_is_named(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_bytes(b'{"q": "x", "route": "advisor"}\n' + line.encode("latin-1"))
    assert main(["route", "--file", str(file)]) == 1
    assert capsys.readouterr().err.startswith("memberintel route: Line 2 is not")

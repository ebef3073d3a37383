"""Every subcommand explains itself."""

from __future__ import annotations

import argparse

import pytest

from local.cli import main, parser


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

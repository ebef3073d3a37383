"""The README and the code say the same."""

from __future__ import annotations

import re
from pathlib import Path

from common.config import Settings, variable
from local.cli import parser

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_every_setting_stands_in_the_readme_and_no_other() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.*?) \| (.*) \|$", README, re.MULTILINE)
    assert {name: text for name, _, text in rows} == {
        variable(name): field.description for name, field in Settings.model_fields.items()
    }


def test_every_runtime_dependency_is_justified() -> None:
    wanted = re.findall(
        r"^([a-z0-9-]+)(?:\[[a-z]+\])?[=>~<]", (ROOT / "requirements.in").read_text(), re.MULTILINE
    )
    table = README.split("## Dependencies")[1].split("## Settings")[0]
    assert wanted
    assert [name for name in wanted if not re.search(rf"(?<![a-z-]){re.escape(name)}(?![a-z-])", table)] == []


def test_every_command_of_the_readme_exists() -> None:
    commands = re.findall(r"\.venv/bin/memberintel ([a-z-]+)", README)
    known = {
        name for action in parser()._actions if isinstance(action.choices, dict) for name in action.choices
    }
    assert commands
    assert set(commands) <= known


def test_every_make_target_of_the_readme_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)(?:[A-Z_]+=\S+ )?make ([a-z-]+)", README, re.MULTILINE))
    assert named >= {"run", "test", "test-slow"}
    assert named <= targets


def test_every_link_of_the_docs_leads_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"

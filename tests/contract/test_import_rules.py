"""The rules on imports fire: a copy of the code that breaks one is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT = Path(sys.executable).parent / "lint-imports"

BREACHES = {
    "common/advisor/skills.py": ("from common.memory import snapshots\n", "Skills and the router"),
    "common/advisor/router.py": ("from common.conversations import HISTORY\n", "Skills and the router"),
    "common/llm/call.py": ("from common import db\n", "The model seam"),
    "common/memory/snapshots.py": ("from flask import request\n", "Only the edge knows Flask"),
    "common/log.py": ("from common.config import settings\n", "Each import goes down"),
    "functions/chat/main.py": ("import functions.brain.main\n", "Functions do not know each other"),
    "common/events.py": ("from anthropic import Anthropic\n", "Each vendor's SDK"),
}


@pytest.mark.parametrize("path", BREACHES)
def test_a_forbidden_import_breaks_its_contract(tmp_path: Path, path: str) -> None:
    line, contract = BREACHES[path]
    for name in ("common", "functions", "local", "evals"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "console", "*.md")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    target = tmp_path / path
    target.write_text(f"{target.read_text()}\n{line}")
    done = subprocess.run([LINT, "--no-cache"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    broken = [row for row in done.stdout.splitlines() if " BROKEN" in row]
    assert any(row.startswith(contract) for row in broken), broken

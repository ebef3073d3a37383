"""Every command of the README, run as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT, Running, free_port

COMMANDS = [
    line.split("#")[0].strip().removeprefix(".venv/bin/memberintel ")
    for line in (ROOT / "README.md").read_text().splitlines()
    if line.startswith(".venv/bin/memberintel ")
]
CSV = "member_id,email,name,registered_at\n1,ann@club.example,Ann,2026-01-05\n"


def test_the_readmes_commands_work_in_their_order(running: Running, tmp_path: Path) -> None:
    assert len(COMMANDS) >= 12
    answer = running.chat("Hello", token=running.token("owner@demo.example"))
    members = tmp_path / "members.csv"
    members.write_text(CSV)
    tenant = ""
    for line in COMMANDS:
        words = shlex.split(line.replace("members.csv", str(members)))
        known = {"--tenant": tenant, "--conversation": answer["conversation_id"], "--turn": answer["turn_id"]}
        words = [
            known.get(before, word) if word == "ID" else word
            for before, word in zip(["", *words], words, strict=False)
        ]
        if words[0] in ("trigger",):
            words += ["--port", str(running.port)]
        done = running.command(*words, check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        if words[:2] == ["tenant", "add"]:
            tenant = done.stdout.strip()


def test_make_run_starts_the_system_and_prints_one_address(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    binaries = Path(sys.executable).parent
    if not (binaries / "memberintel").exists():
        pytest.skip("the project is not installed in this environment, as `make setup` does")
    process = subprocess.Popen(
        ["make", "--silent", "--old-file", f"{sys.prefix}/.installed", f"VENV={sys.prefix}", "run",
         f"ARGS=--data {tmp_path} --port {free_port()}"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if "Ctrl-C" in line:
            break
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert len(re.findall(r"https?://", printed)) == 1, printed

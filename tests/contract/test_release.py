"""The release: the steps of cloudbuild.yaml and their order, and the scripts that they run, against a stand-in for gcloud."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from local.cli import parser

ROOT = Path(__file__).resolve().parents[2]
TERRAFORM = ROOT / "terraform"


def release_steps() -> list[dict[str, Any]]:
    return list(yaml.safe_load((ROOT / "cloudbuild.yaml").read_text(encoding="utf-8"))["steps"])


def test_a_release_goes_its_steps_in_order() -> None:
    order = [step["id"] for step in release_steps()]
    expected = [
        "lint",
        "test",
        "build",
        "serving",
        "previous",
        "plan",
        "save-plan",
        "migrate",
        "apply",
        "keys",
        "smoke",
        "shift",
        "evals",
        "gate",
    ]
    assert [step for step in order if step in expected] == expected
    assert order.index("go-live") < order.index("migrate")
    assert all("waitFor" not in step for step in release_steps()), "a step that waits for less runs early"


def test_each_step_belongs_to_one_of_the_two_builds() -> None:
    stages = [re.search(r'\[ "\$_STAGE" = (plan|apply) \]', step["script"]) for step in release_steps()]
    assert all(stages)
    assert [s.group(1) for s in stages if s] == sorted((s.group(1) for s in stages if s), reverse=True)


def test_a_release_calls_the_commands_that_the_repository_has() -> None:
    script = {step["id"]: step["script"] for step in release_steps()}
    assert "make lint" in script["lint"]
    assert "make test" in script["test"]
    assert "memberintel migrate" in script["migrate"]
    assert 'memberintel smoke --url "https://candidate.$_DOMAIN"' in script["smoke"]
    smoke = re.search(r"memberintel (smoke .*)", script["smoke"])
    assert smoke
    asked = parser().parse_args(shlex.split(smoke.group(1)))
    assert asked.project, "its log events are read back"
    assert asked.sign_in, "and it signs in as a customer"
    assert "memberintel evals --provider anthropic" in script["evals"]
    assert "memberintel evals --gate" in script["evals"]
    assert "release.tfplan" in script["apply"]
    assert "-var" not in script["apply"], "the plan that was approved is applied, not another"
    for step in release_steps():
        for path in re.findall(r"terraform/release/\w+\.sh", step["script"]):
            assert os.access(ROOT / path, os.X_OK), path


@pytest.mark.parametrize(
    ("environment", "text", "refused"),
    [
        ("prod", "- [ ] open", True),
        ("prod", "  * [] open", True),
        ("prod", "- [x] closed", False),
        ("prod", "", True),
        ("staging", "- [ ] open", False),
    ],
)
def test_production_is_refused_while_a_box_is_open(
    tmp_path: Path, environment: str, text: str, refused: bool
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "go-live.md").write_text(text)
    script = next(step["script"] for step in release_steps() if step["id"] == "go-live")
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "_STAGE": "apply", "_ENVIRONMENT": environment},
        capture_output=True,
    )
    assert (done.returncode != 0) == refused


def test_the_checklist_waits_for_privacy_counsel() -> None:
    boxes = re.findall(
        r"^- \[(.)\] .*\*(\w+)\*$", (ROOT / "docs" / "go-live.md").read_text(encoding="utf-8"), re.M
    )
    assert len([owner for _, owner in boxes if owner == "Counsel"]) >= 8


# A stand-in for gcloud: it writes down how it was called and answers what the scripts ask.
GCLOUD = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in
  *"services list"*) [ "$FAILED" = 0 ] || exit 1
    cat <<'END'
[{"metadata": {"name": "chat"},
  "status": {"traffic": [{"revisionName": "chat-new", "tag": "candidate"}, {"revisionName": "chat-old", "percent": 100}]}},
 {"metadata": {"name": "relay-events"}, "status": {"traffic": [{"revisionName": "relay-events-1", "percent": 100}]}}]
END
    ;;
  *"revisions describe"*) echo "r-docker.pkg.dev/p/memberintel/memberintel:0123abc" ;;
  *describe*) echo "$4-new" ;;
  *"logging read"*"status>=500"*) seq "$FAILED" ;;
  *"logging read"*) seq 40 ;;
esac
"""


def release(tmp_path: Path, script: str, *arguments: str, failed: int = 0) -> tuple[int, list[str]]:
    """Run a script of the release with the stand-in; its exit code and the traffic it moved."""
    gcloud, calls = tmp_path / "gcloud", tmp_path / "calls"
    gcloud.write_text(GCLOUD)
    gcloud.chmod(0o755)
    calls.touch()
    serving = tmp_path / "serving.tfvars.json"
    if not serving.exists():
        serving.write_text('{"serving": {"chat": "chat-old", "brain": "brain-old"}}')
    done = subprocess.run(
        [TERRAFORM / "release" / script, *arguments],
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "CALLS": str(calls),
            "FAILED": str(failed),
            "SERVING": str(serving),
            "WATCH_SECONDS": "0",
            "_REGION": "r",
        },
        cwd=tmp_path,
        capture_output=True,
    )
    moved = re.findall(r"update-traffic (\w+) .*--to-(?:tags|revisions)=(\S+)", calls.read_text())
    return done.returncode, [" ".join(m) for m in moved]


def test_traffic_moves_in_steps_and_chat_last(tmp_path: Path) -> None:
    code, moved = release(tmp_path, "shift.sh", "forward")
    assert code == 0
    assert moved == [
        f"{service} candidate={percent}"
        for percent in (10, 50, 100)
        for service in ("brain", "admin", "chat")
    ]


def test_traffic_goes_back_by_itself_when_the_new_revision_fails(tmp_path: Path) -> None:
    code, moved = release(tmp_path, "shift.sh", "forward", failed=10)
    assert code == 1
    assert moved[-2:] == ["brain brain-old=100", "chat chat-old=100"]
    assert not [m for m in moved if m.endswith("=50")]


def test_a_failure_by_chance_stops_no_release(tmp_path: Path) -> None:
    assert release(tmp_path, "shift.sh", "forward", failed=2)[0] == 0


def test_the_plan_is_told_what_serves_now(tmp_path: Path) -> None:
    assert release(tmp_path, "serving.sh")[0] == 0
    assert json.loads((tmp_path / "serving.tfvars.json").read_text()) == {"serving": {"chat": "chat-old"}}


def test_what_serves_now_is_tried_on_the_new_schema(tmp_path: Path) -> None:
    assert release(tmp_path, "serving.sh")[0] == 0
    assert (tmp_path / "serving-commit").read_text() == "0123abc\n"
    assert "revisions describe chat-old" in (tmp_path / "calls").read_text()
    script = next(step["script"] for step in release_steps() if step["id"] == "previous")
    assert 'make test-previous PREVIOUS="$(cat serving-commit)"' in script


def test_a_plan_is_not_made_when_it_is_unknown_what_serves(tmp_path: Path) -> None:
    assert release(tmp_path, "serving.sh", failed=1)[0] != 0


@pytest.mark.parametrize(
    ("verdict", "released"),
    [
        ("release gate: passed: anthropic, abc, 2026-05-12", True),
        ("release gate: failed: anthropic, abc, 2026-05-12", False),
        ("release gate: not run: there is no report", False),
        ("", False),
    ],
)
def test_only_passed_evals_let_a_release_stay(tmp_path: Path, verdict: str, released: bool) -> None:
    (tmp_path / "evals.verdict").write_text(verdict)
    shift = tmp_path / "terraform" / "release" / "shift.sh"
    shift.parent.mkdir(parents=True)
    shift.write_text("#!/bin/sh\ntouch went-$1\n")
    shift.chmod(0o755)
    script = next(step["script"] for step in release_steps() if step["id"] == "gate")
    environ = {**os.environ, "_STAGE": "apply"}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environ, capture_output=True)
    assert (done.returncode == 0) == released
    assert (tmp_path / "went-back").exists() != released

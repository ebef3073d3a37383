"""What is deployed: the archives of the functions, and the requirements of the cloud."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from local import package

ROOT = Path(__file__).resolve().parents[2]


def small_repository(root: Path) -> Path:
    for path, text in {
        "functions/relay_events/main.py": "from common import answer\n\n\ndef relay_events(request):\n    return answer()\n",
        "common/__init__.py": "def answer():\n    return 'relayed'\n",
        "common/__pycache__/stale.pyc": "no",
        "requirements.txt": (
            "flask==3.1.3 \\\n    --hash=sha256:aa\n"
            "onnxruntime==1.32.0 ; python_version < '4' \\\n    --hash=sha256:bb\n"
            "pg8000==1.31.6\n"
        ),
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_an_archive_runs_with_nothing_beside_it(tmp_path: Path) -> None:
    made = package.archive("relay_events", tmp_path / "out", root=small_repository(tmp_path))
    shutil.unpack_archive(made, tmp_path / "deployed")
    done = subprocess.run(
        [sys.executable, "-c", "import main; print(main.relay_events(None))"],
        cwd=tmp_path / "deployed",
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "relayed\n"
    assert (tmp_path / "deployed/requirements.txt").read_text() == (
        "flask==3.1.3 \\\n    --hash=sha256:aa\npg8000==1.31.6\n"
    )
    assert not list((tmp_path / "deployed").rglob("stale.pyc"))


def test_the_same_sources_make_the_same_archive_on_another_day_and_machine(tmp_path: Path) -> None:
    first = package.archive("relay_events", tmp_path / "a", root=small_repository(tmp_path / "one"))
    other = small_repository(tmp_path / "two")
    for path in other.rglob("*.py"):
        os.utime(path, (0, 0))
        path.chmod(0o600)
    second = package.archive("relay_events", tmp_path / "b", root=other)
    assert first.read_bytes() == second.read_bytes()


def test_a_function_without_a_main_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"functions/backfill_wrap_ups/main\.py"):
        package.archive("backfill_wrap_ups", tmp_path / "out", root=small_repository(tmp_path))


def test_the_cloud_needs_no_embedded_database() -> None:
    pinned = package.cloud_requirements((ROOT / "requirements.txt").read_text(encoding="utf-8"))
    names = set(re.findall(r"^([\w.-]+)==", pinned, re.M))
    assert not package.LOCAL_ONLY & names
    assert {"flask", "functions-framework", "sqlalchemy", "pg8000", "anthropic"} <= names

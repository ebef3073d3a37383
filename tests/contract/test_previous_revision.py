"""That the old code is really tried on the new schema: an expansion passes, anything else is found."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.previous.run import ROOT, NoHistory, main, previous_revision, run_tests, unpack

SELECTION = ("tests/functions/test_chat.py", "-q")
MIGRATION = '''"""A later schema."""

from alembic import op

revision = "9999"
down_revision = "{head}"


def upgrade() -> None:
    op.execute("{sql}")
'''


def later(folder: Path, sql: str) -> Path:
    """This code with one migration more."""
    shutil.copytree(ROOT / "common", folder / "common", ignore=shutil.ignore_patterns("__pycache__"))
    versions = folder / "common" / "migrations" / "versions"
    head = max(path.name[:4] for path in versions.glob("*.py"))
    (versions / "9999_later.py").write_text(MIGRATION.format(head=head, sql=sql))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sql", "passes"),
    [
        ("alter table messages add column mood text", True),
        ("alter table messages drop column text", False),
        ("alter table messages add column mood text not null", False),
    ],
    ids=["expanded", "contracted", "demanding"],
)
def test_the_old_code_runs_on_an_expanded_schema_and_on_no_other(
    tmp_path: Path, sql: str, passes: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    code = run_tests(ROOT, later(tmp_path, sql), SELECTION)
    assert (code == 0) == passes, capfd.readouterr().out
    assert code in (0, 1), "the tests ran"


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@t.example"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three commits, the file `n` holding the number of each."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    for number in ("1", "2", "3"):
        (folder / "n").write_text(number)
        git(folder, "add", "n")
        git(folder, "commit", "-q", "-m", number)
    return folder


def test_the_release_before_is_the_newest_tag_and_else_the_parent(repository: Path, tmp_path: Path) -> None:
    unpack(previous_revision(repository), tmp_path / "parent", repository)
    assert (tmp_path / "parent" / "n").read_text() == "2"
    git(repository, "tag", "v1", "HEAD~2")
    unpack(previous_revision(repository), tmp_path / "tag", repository)
    assert (tmp_path / "tag" / "n").read_text() == "1"


def test_a_history_that_is_too_short_is_said(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", repository.as_uri(), "shallow")
    with pytest.raises(NoHistory, match="shallow clone"):
        previous_revision(tmp_path / "shallow")
    with pytest.raises(NoHistory, match="git does not have v0"):
        unpack("v0", tmp_path / "nothing", repository)


def test_a_release_that_was_named_and_is_not_there_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["0" * 40]) == 1
    assert "were not run: git does not have 000" in capsys.readouterr().out

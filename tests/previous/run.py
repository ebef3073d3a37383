"""The tests of the release before this one, on a database that this one has migrated: while a release is applied, the old code runs on the
new schema. `python -m tests.previous.run [REVISION] [-- PYTEST ARGUMENTS]`

Without a revision it is the newest tag before this commit, else the commit's first parent; where the history does not reach so far, it says
so and passes. A revision that was named and is not there is a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = Path(__file__).resolve().parent
TESTS = ("tests/functions", "-m", "not slow")


class NoHistory(Exception):
    """There is no earlier revision to test; the text says why."""


def previous_revision(repository: Path = ROOT) -> str:
    """The commit that is released, as far as the history of `repository` knows. Raises NoHistory."""
    try:
        if tag := _git(repository, "describe", "--tags", "--abbrev=0", "HEAD^"):
            return tag
        if parent := _git(repository, "rev-parse", "--verify", "--quiet", "HEAD^"):
            return parent
    except FileNotFoundError:
        raise NoHistory("git is not installed") from None
    if _git(repository, "rev-parse", "--is-shallow-repository") == "true":
        raise NoHistory("this is a shallow clone (git fetch --unshallow --tags)")
    raise NoHistory("there is no commit before this one")


def unpack(revision: str, into: Path, repository: Path = ROOT) -> None:
    """Write the files of `revision` into the folder `into`. Raises NoHistory where git does not have it."""
    into.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(
        ["git", "archive", "--format=tar", revision], cwd=repository, capture_output=True, check=False
    )
    if packed.returncode:
        raise NoHistory(f"git does not have {revision} here")
    subprocess.run(["tar", "-x", "-C", str(into)], input=packed.stdout, check=True)


def run_tests(previous: Path, head: Path = ROOT, arguments: Sequence[str] = TESTS) -> int:
    """pytest's exit code for the tests in `previous`, its code on databases that the code in `head` has migrated."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(previous), str(PLUGIN)]),
        "MEMBERINTEL_TEST_HEAD": str(head),
    }
    command = [sys.executable, "-m", "pytest", "-p", "head_schema", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=previous, env=environment, check=False).returncode


def _git(repository: Path, *arguments: str) -> str:
    """What git says, empty where it refuses."""
    done = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def main(arguments: Sequence[str]) -> int:
    """The command."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    named, pytest_arguments = arguments[:cut], arguments[cut + 1 :] or TESTS
    with tempfile.TemporaryDirectory(prefix="memberintel-previous-") as folder:
        Path(folder).chmod(0o755)
        try:
            revision = named[0] if named else previous_revision()
            unpack(revision, Path(folder))
        except NoHistory as exc:
            print(f"The tests of the release before were {'not run' if named else 'skipped'}: {exc}.")
            return 1 if named else 0
        print(f"The tests of {revision} on the schema of this revision:", flush=True)
        return run_tests(Path(folder), arguments=pytest_arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

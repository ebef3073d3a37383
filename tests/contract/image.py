"""The image, as far as it can be made without a container engine: the Dockerfile's own instructions, carried out in a folder.

`/app` and `/venv` are that folder's; the packages are those that the tests run with, less what is pinned for a laptop only. What this
cannot tell is whether the base image has what is asked of it.
"""

from __future__ import annotations

import atexit
import functools
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from local import package

DOCKERFILE = package.ROOT / "Dockerfile"
# What a package of LOCAL_ONLY is called where it is imported.
LOCAL_MODULES = tuple(sorted(name.replace("-", "_") for name in package.LOCAL_ONLY))
_INSTALL = re.compile(r"/venv/bin/pip install .*--require-hashes -r cloud\.txt")
# In front of everything: what is not deployed cannot be imported, nor found by way of an installation that points into the repository.
_ABSENT = """
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"{{name}} is not deployed", name=name)
        return None


sys.meta_path[:] = [Absent(), *(f for f in sys.meta_path if "editable" not in f"{{f}} {{getattr(f, '__module__', '')}}".lower())]
"""


@dataclass(frozen=True)
class Image:
    """A made image: its `root`, the environment that its ENV lines set, and the command that it runs."""

    root: Path
    environment: dict[str, str]
    command: list[str]

    @property
    def app(self) -> Path:
        return self.root / "app"


def hide(folder: Path, *modules: str) -> Path:
    """A folder for PYTHONPATH with which a process cannot import `modules`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(_ABSENT.format(absent=frozenset(modules)))
    return folder


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, continued lines joined, comments left out."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(encoding="utf-8"), flags=re.M).replace("\\\n", " ")
    return [
        (word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)
    ]


@functools.cache
def shared() -> Image:
    """An image for all tests of a process; its folder goes with the process."""
    folder = tempfile.TemporaryDirectory(prefix="memberintel-image-")
    atexit.register(folder.cleanup)
    return build(Path(folder.name))


def build(root: Path) -> Image:
    """Carry the Dockerfile out in `root`. CalledProcessError for a step that fails, AssertionError for one that is not understood."""
    (root / "app").mkdir(parents=True)
    environment: dict[str, str] = {}
    command: list[str] = []
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from=build "):
            _copy(root, rest.split())
        elif word == "RUN" and not rest.startswith("useradd"):
            _run(root, rest)
        elif word == "ENV":
            environment |= dict(part.split("=", 1) for part in _inside(root, rest).split())
        elif word == "CMD":
            command = json.loads(rest)
        else:
            assert (word, rest) in UNDERSTOOD or rest.startswith("useradd"), f"{word} {rest}"
    return Image(root, environment, command)


# They change nothing that a folder could show; the second stage takes both folders over as they are.
UNDERSTOOD = {
    ("FROM", "python:3.12-slim AS build"),
    ("FROM", "python:3.12-slim"),
    ("WORKDIR", "/app"),
    ("COPY", "--from=build /venv /venv"),
    ("COPY", "--from=build /app /app"),
    ("USER", "10001"),
}


def _copy(root: Path, paths: list[str]) -> None:
    """What the build's context holds: .dockerignore shuts out all that it does not name."""
    *sources, target = paths
    sent = re.findall(r"^!(\S+)$", (package.ROOT / ".dockerignore").read_text(encoding="utf-8"), re.M)
    for source in sources:
        assert any(source == s or source.startswith(f"{s}/") for s in sent), f"{source} is not in the context"
        origin, into = package.ROOT / source, root / "app" / target
        if origin.is_dir():
            shutil.copytree(origin, into, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            into.mkdir(parents=True, exist_ok=True)
            shutil.copy(origin, into)


def _run(root: Path, line: str) -> None:
    """A RUN line. Instead of an installation the packages that are installed here are shown to the new environment."""
    assert "pip install" not in line or _INSTALL.search(line), line
    subprocess.run(
        ["bash", "-euc", _inside(root, _INSTALL.sub("/venv/bin/python -c 'pass'", line))],
        cwd=root / "app",
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        check=True,
    )
    if _INSTALL.search(line):
        (lib,) = (root / "venv" / "lib").glob("python*/site-packages")
        packages = next(p for p in sys.path if p.endswith("site-packages"))
        (lib / "installed.pth").write_text(f"{packages}\n")
        hide(lib, *LOCAL_MODULES)


def _inside(root: Path, text: str) -> str:
    return re.sub(r"(?<![\w/])/(venv|app)(?=[/\s:'\"]|$)", lambda found: f"{root}/{found[1]}", text)

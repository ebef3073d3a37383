"""A pytest plugin: every migration is carried out by the code in the folder MEMBERINTEL_TEST_HEAD, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from sqlalchemy import Engine

# Settings refuse what they do not know, so this process must not keep it.
HEAD = os.environ.pop("MEMBERINTEL_TEST_HEAD")
MIGRATE = """
import sys
import sqlalchemy
from common.migrations import run
run.migrate(sqlalchemy.create_engine(sys.argv[1]))
"""


def pytest_configure(config: pytest.Config) -> None:
    from common.migrations import run

    run.migrate = _migrate


def _migrate(engine: Engine, revision: str = "head") -> None:
    url = engine.url.render_as_string(hide_password=False)
    environment = {**os.environ, "PYTHONPATH": HEAD}
    subprocess.run([sys.executable, "-c", MIGRATE, url], cwd=HEAD, env=environment, check=True)

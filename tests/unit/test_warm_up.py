"""Loading ahead: in the process that serves, and on Cloud Run alone."""

from __future__ import annotations

import gc
import json
import subprocess
import sys

import pytest

from common import warm_up
from common.config import Settings
from common.errors import ConfigError

FORKING = """
import os, threading
from common import warm_up
loaded = threading.Event()
warm_up.in_each_worker(lambda config: loaded.set() if config.environment == "local" else None)
assert not loaded.is_set()
if (child := os.fork()) == 0:
    os._exit(0 if {seen} else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), loaded.is_set())
"""


@pytest.mark.parametrize(
    ("environment", "seen"),
    [
        ({"K_SERVICE": "chat"}, "loaded.wait(60)"),
        ({}, "threading.active_count() == 1 and not loaded.is_set()"),
    ],
    ids=["cloud", "elsewhere"],
)
def test_on_the_cloud_the_worker_loads_and_elsewhere_nobody(environment: dict[str, str], seen: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING.format(seen=seen)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "0 False", done.stderr


def test_what_fails_is_logged_and_keeps_nothing_else_from_loading(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Settings] = []

    def fails(config: Settings) -> None:
        raise ConfigError("MEMBERINTEL_X is wrong.")

    warm_up.begin(Settings, fails, seen.append).join()
    assert seen == [Settings()]
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["message"], line["severity"]) == ("could not be loaded ahead", "ERROR")
    assert line["step"].endswith("fails")
    assert gc.isenabled()

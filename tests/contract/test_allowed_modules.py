"""What each function may import at its start, which decides how soon it can answer: what is not listed here waits for its first use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# functions-framework, the database's two libraries, and what these bring along.
FLOOR = "import functions_framework, sqlalchemy, pg8000"
# Beside the floor: of others' packages the same for all.
OTHERS = {"pydantic", "pydantic_core", "annotated_types", "typing_inspection"}
# Of our own: which folders of `common`, beside the modules that lie there openly.
FOLDERS = {
    "admin": "knowledge warehouse",
    "backfill_wrap_ups": "llm",
    "brain": "customer knowledge llm memory tools warehouse",
    "chat": "advisor knowledge llm memory tools turns warehouse",
    "export_bigquery": "warehouse",
    "generate_wrap_up": "llm memory",
    "nightly_refresh": "knowledge llm memory sites warehouse",
    "persist_tool_results": "llm memory tools",
    "relay_events": "",
}

LOADED = """
import json, sys
{floor}
before = set(sys.modules)
functions_framework.create_app("main", "functions/{name}/main.py")
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_every_function_is_listed() -> None:
    assert {path.parent.name for path in ROOT.glob("functions/*/main.py")} == set(FOLDERS)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_start_imports_only_what_is_allowed(name: str) -> None:
    code = LOADED.format(floor=FLOOR, name=name)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = [module.split(".") for module in json.loads(done.stdout)]
    own = {"common", "functions", "main"}
    assert {parts[0] for parts in loaded} - sys.stdlib_module_names - own <= OTHERS
    folders = {path.parent.name for path in ROOT.glob("common/*/__init__.py")}
    used = {parts[1] for parts in loaded if parts[0] == "common" and len(parts) > 1} & folders
    assert used <= set(FOLDERS[name].split())

"""The other side's software that the contract tests run against, and the page about it: `python -m tests.contract.compatibility`.

Versions are those of the pins: `requirements.txt`, and `package.json` for what comes from npm.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/compatibility.md"
_NPM = json.loads((Path(__file__).parent / "ai_sdk/package.json").read_text())["dependencies"]
# Programs that are not pinned by a file of ours: the versions that the tests last passed with.
_PROGRAMS = {"Google Pub/Sub emulator": "0.8.20", "Node.js": "20.20", "Java": "17"}

# What BigQuery's emulator needs around it, in a venv of its own: the program first.
EMULATOR = (
    "bqemulator==1.4.0",
    "duckdb==1.5.5",
    "duckdb-extensions==1.5.5",
    "duckdb-extension-spatial==1.5.5",
    "numpy",
)
_PROGRAMS["bqemulator"] = EMULATOR[0].partition("==")[2]

# What it is, where its version is pinned, what runs against it, and what is proven of it.
_PARTS = (
    (
        "AI SDK, current",
        "npm ai",
        "test_ai_sdk.py",
        "`useChat`'s chat and transport with their default body and ids",
    ),
    ("AI SDK 5, which refuses unknown fields", "npm ai-5", "test_ai_sdk.py", "the same, chunk for chunk"),
    ("functions-framework", "pip functions-framework", "test_framework.py", "each function from its archive"),
    ("gunicorn", "pip gunicorn", "test_framework.py", "streams as the model speaks; drains on SIGTERM"),
    ("google-cloud-pubsub", "pip google-cloud-pubsub", "test_pubsub_emulator.py", "publishing from a turn"),
    (
        "Google Pub/Sub emulator",
        "program",
        "test_pubsub_emulator.py",
        "push, redelivery, failure, dead rows and replay",
    ),
    ("anthropic", "pip anthropic", "test_anthropic_wire.py", "the Messages API as its SDK reads it"),
    ("google-genai", "pip google-genai", "test_vertex_wire.py", "Gemini on Vertex AI as its SDK reads it"),
    ("google-cloud-bigquery", "pip google-cloud-bigquery", "test_bigquery.py", "load jobs of the export"),
    (
        "google-cloud-logging",
        "pip google-cloud-logging",
        "test_smoke.py",
        "the smoke test reads a turn's events back",
    ),
    (
        "bqemulator",
        "program",
        "test_bigquery_emulator.py",
        "the export's days, counts and values; the SQL of erasure and of the sinks' comparison. Behind a door that does what it lacks:"
        " partition decorators, a CSV without names, `nullMarker`, `outputRows`",
    ),
    ("Node.js", "program", "test_ai_sdk.py", "runs the AI SDK"),
    ("Java", "program", "test_pubsub_emulator.py", "runs the emulator"),
)


def version(name: str, pin: str) -> str:
    """The version that is pinned."""
    if pin == "program":
        return _PROGRAMS[name]
    kind, package = pin.split()
    if kind == "npm":
        return str(_NPM[package]).rpartition("@")[2]
    found = re.search(rf"^{re.escape(package)}==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert found, f"{package} is not pinned"
    return found[1]


def page() -> str:
    """The page as it must stand in `docs/`."""
    rows = [f"| {name} | {version(name, pin)} | `{test}` | {what} |" for name, pin, test, what in _PARTS]
    return "\n".join(
        [
            "# Compatibility",
            "",
            "The software of others that this system speaks with, and the test under `tests/contract/` that proves it. Those that need an",
            "emulator or Node.js run with `make test-slow`. Written by `python -m tests.contract.compatibility`.",
            "",
            "| other side | version | test | proven |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page())

"""schemathesis's own command against the running system, with things to find in it: every check, by the configuration at the root."""

from __future__ import annotations

import subprocess
import sys

from tests.e2e.conftest import ROOT, Running

OWNER, SECOND = "owner@demo.example", "second@demo.example"
DECISION = (
    "We decided to raise the price of the Gold plan to 35 dollars from January on, because our costs rose and the"
    " yearly members asked for more live calls. We still need to write the announcement to all members."
)
_RUN = "from schemathesis.cli import schemathesis; schemathesis()"


def fill(running: Running, conversations: int) -> None:
    """Give the owner conversations, snapshots, wrap-ups and memories, so that not every request ends at 404."""
    token = running.token(OWNER)
    for _ in range(conversations):
        talk = running.chat("How many active members do I have?", token=token)["conversation_id"]
        running.chat(DECISION, token=token, conversation_id=talk)
        assert running.call("POST", f"/v1/conversations/{talk}/end", token=token)[0] == 200
    had = len(running.call("GET", "/v1/brain/memories", token=token)[1]["items"])
    for number in range(had, 10):  # the tier's limit leaves room for those that schemathesis adds
        memory = {"content": f"The {number}th live call of the year is on a Monday."}
        assert running.call("POST", "/v1/brain/memories", memory, token=token)[0] == 201


def generate(running: Running, *options: str, email: str = OWNER) -> str:
    """Run schemathesis as `email`; what it printed. Fails where an answer is not as the document says."""
    done = subprocess.run(
        [
            sys.executable, "-c", _RUN, "run", f"http://127.0.0.1:{running.port}/openapi.json", "--checks", "all",
            "--header", f"Authorization: Bearer {running.token(email)}", "--generation-deterministic",
            "--continue-on-failure", "--no-color", *options,
        ],
        capture_output=True, text=True, cwd=ROOT, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

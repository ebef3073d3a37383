"""The AI SDK's own client against the running system: `useChat` works with its default body, ids and schema.

The SDK comes from npm into pytest's cache folder. Its current major is the client of today; major 5 refuses chunks with a field that it
does not know, so it is the strict reader of the same protocol.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Running, start
from tests.stubs.anthropic_server import Reply, Scripted, api_error, message, scripted, stream_error

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent / "ai_sdk"
OWNER = "owner@demo.example"
QUESTION = "What would you advise me to do about failed payments?"


@pytest.fixture(scope="module")
def sdk_folder(pytestconfig: pytest.Config) -> Path:
    """Where the SDK is installed, with the client's script beside it."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("there is no Node.js on this machine")
    folder = Path(pytestconfig.cache.mkdir("ai-sdk"))  # type: ignore[union-attr]
    for file in HERE.iterdir():
        shutil.copy(file, folder)
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"],
        cwd=folder, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def model() -> Iterator[Scripted]:
    with scripted() as server:
        yield server


@pytest.fixture(scope="module")
def running(model: Scripted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The whole system, its models played by `model`."""
    data = tmp_path_factory.mktemp("data")
    data.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_API_KEY", "sk-test")
        patch.setenv("ANTHROPIC_BASE_URL", model.url)
        patch.setenv("MEMBERINTEL_EMBEDDING_MODEL", "hashed")
        system = start(data)
    yield system
    if system.process.poll() is None:
        system.stop()


@dataclass
class Step:
    """One action of the client and what it led to."""

    record: dict[str, Any]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """What came over the wire, in the order it came."""
        lines = [line for line in self.record["raw"].split("\n\n") if line.startswith("data: ")]
        return [json.loads(line[6:]) for line in lines if line != "data: [DONE]"]

    @property
    def types(self) -> list[str]:
        """The chunks' types, repeats folded."""
        names = [chunk["type"] for chunk in self.chunks]
        return [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]

    @property
    def answer(self) -> dict[str, Any]:
        """The last message of the chat, or of what was read without one."""
        found: dict[str, Any] = self.record["read"] or self.record["messages"][-1]
        return found

    def parts(self, kind: str) -> list[dict[str, Any]]:
        return [part for part in self.answer["parts"] if part["type"] == kind]

    @property
    def text(self) -> str:
        return "".join(part["text"] for part in self.parts("text"))


class Client:
    """Runs a conversation through one major of the SDK."""

    def __init__(self, folder: Path, package: str, running: Running) -> None:
        self.folder, self.package, self.running = folder, package, running
        self.token = running.token(OWNER)

    def __call__(self, *steps: dict[str, Any]) -> list[Step]:
        given = {
            "sdk": self.package,
            "api": f"http://127.0.0.1:{self.running.port}/chat",
            "token": self.token,
            "id": uuid.uuid4().hex[:16],
            "steps": steps,
        }
        done = subprocess.run(
            ["node", "converse.mjs"],
            cwd=self.folder, input=json.dumps(given), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [Step(record) for record in json.loads(done.stdout)]


@pytest.fixture(params=["ai", "ai-5"])
def client(request: pytest.FixtureRequest, sdk_folder: Path, running: Running) -> Client:
    return Client(sdk_folder, request.param, running)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def tool_use(name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex}", "name": name, "input": given}


def send(what: str) -> dict[str, Any]:
    return {"do": "send", "text": what}


def asks_for(name: str, **given: Any) -> Reply:
    return message(text("I look that up."), tool_use(name, **given), stop="tool_use")


def test_a_turn_with_tools_sources_and_recall_arrives_whole(client: Client, model: Scripted) -> None:
    model.play(
        asks_for("query_kpi_trend", metric="active_members"),
        message(text("Retry them, as article [1] says.")),
        message(text("As before, see [1].")),
    )
    first, second = client(send(QUESTION), send("And what else would you advise about failed payments?"))

    assert first.record["status"] == "ready", first.record["error"]
    assert first.record["headers"]["x-vercel-ai-ui-message-stream"] == "v1"
    assert first.record["finished"] == {"isAbort": False, "isError": False}
    assert first.types == [
        "start", "data-route", "data-recall",
        "start-step", "text-start", "text-delta", "text-end", "tool-input-available", "tool-output-available",
        "finish-step", "start-step", "text-start", "text-delta", "text-end", "finish-step",
        "source-document", "finish",
    ]  # fmt: skip
    assert first.text.split("\n\n") == ["I look that up.", "Retry them, as article [1] says."]
    (tool,) = first.parts("tool-query_kpi_trend")
    assert (tool["state"], tool["input"]) == ("output-available", {"metric": "active_members"})
    assert tool["output"]["as_of"]
    (source,) = first.parts("source-document")
    assert source["title"]
    assert source["providerMetadata"]["memberintel"]["n"] == 1
    assert first.parts("data-route")[0]["data"]["name"] == "advisor"
    metadata = first.answer["metadata"]
    assert metadata["status"] == "complete"
    assert metadata["usage"]["output_tokens"] > 0
    assert uuid.UUID(metadata["conversation_id"])
    assert first.answer["id"] == first.chunks[0]["messageId"]

    (recall,) = second.parts("data-recall")
    assert any("query_kpi_trend" in line for line in recall["data"]["snapshots"])
    assert second.answer["metadata"]["conversation_id"] == metadata["conversation_id"]
    assert [m["role"] for m in second.record["messages"]] == ["user", "assistant"] * 2


def test_a_skills_turn_arrives_too(client: Client, model: Scripted) -> None:
    model.play(
        message(tool_use("query_kpi_trend", metric="active_members"), stop="tool_use"),
        message(text("You have some.")),
    )
    (step,) = client(send("How many active members do I have?"))
    assert step.record["status"] == "ready", step.record["error"]
    assert step.parts("data-route")[0]["data"]["name"] == "kpi"
    assert step.parts("tool-query_kpi_trend")[0]["state"] == "output-available"
    assert step.text == "You have some."


def test_a_tool_that_failed_is_shown_as_failed_and_the_answer_goes_on(
    client: Client, model: Scripted
) -> None:
    model.play(asks_for("query_kpi_trend", metric="moon_phase"), message(text("There is no such metric.")))
    (step,) = client(send(QUESTION))
    assert step.record["status"] == "ready", step.record["error"]
    (tool,) = step.parts("tool-query_kpi_trend")
    assert tool["state"] == "output-error"
    assert tool["errorText"].startswith("Wrong arguments. metric:")
    assert step.text.endswith("There is no such metric.")


def test_a_model_that_refuses_is_an_error_and_asking_again_mends_it(client: Client, model: Scripted) -> None:
    """The chat's usual button after an error is `regenerate()`."""
    model.play(api_error(400, "invalid_request_error"), message(text("Better now.")))
    failed, again = client(send(QUESTION), {"do": "regenerate"})
    assert failed.record["status"] == "error"
    assert failed.record["error"] == failed.chunks[-1]["errorText"]
    assert "finish" not in failed.types
    assert again.record["status"] == "ready", again.record["error"]
    assert again.text == "Better now."
    assert [m["role"] for m in again.record["messages"]] == ["user", "assistant"]


def test_a_model_that_breaks_off_leaves_what_it_said_and_an_error(client: Client, model: Scripted) -> None:
    model.play(stream_error("overloaded_error", text("The first half")))
    (step,) = client(send(QUESTION))
    assert step.record["status"] == "error"
    assert step.text == "The first half"
    assert step.types[-2:] == ["error", "finish"]


def test_a_refused_request_reaches_the_client_as_its_problem(client: Client, model: Scripted) -> None:
    (step,) = client(send("x" * 8_001))
    assert (step.record["http"], step.record["status"]) == (422, "error")
    assert json.loads(step.record["error"])["type"].endswith("invalid-fields")


class Endless:
    """An answer that goes on until its reader has left."""

    def __init__(self) -> None:
        self.pace = threading.Event()

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        opening = stream_error("unused", text("Once upon a time")).events[:-2]
        yield from opening
        delta = {"type": "text_delta", "text": " and on"}
        while not self.pace.wait(0.02):
            yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}


def test_a_reader_who_stops_finds_what_was_said_kept_and_goes_on(client: Client, model: Scripted) -> None:
    model.play(Reply(events=Endless()), message(text("The end.")))  # type: ignore[arg-type]
    stopped, replayed, again = client(
        {"do": "stop", "text": QUESTION, "said": "and on and on"}, {"do": "resend"}, {"do": "regenerate"}
    )
    assert stopped.record["status"] == "ready"
    assert stopped.record["finished"] == {"isAbort": True, "isError": False}
    assert replayed.text.startswith("Once upon a time and on and on")
    assert replayed.answer["metadata"]["status"] == "interrupted"
    assert again.text == "The end."


def test_a_resent_message_is_replayed_and_not_answered_twice(client: Client, model: Scripted) -> None:
    model.play(
        asks_for("query_kpi_trend", metric="active_members"),
        message(text("Once, see [1].")),
        api_error(400, "x"),
    )
    before = len(model.bodies)
    first, again = client(send(QUESTION), {"do": "resend"})
    assert len(model.bodies) == before + 2
    assert again.record["http"] == 200
    assert again.answer["id"] == first.answer["id"]
    assert again.text == first.text
    assert (
        again.parts("tool-query_kpi_trend")[0]["output"] == first.parts("tool-query_kpi_trend")[0]["output"]
    )
    assert again.parts("source-document") == first.parts("source-document")
    assert again.answer["metadata"]["replayed"] is True


@pytest.mark.parametrize("given", [False, True], ids=["last", "named"])
def test_each_regenerate_is_another_answer_in_the_same_place(
    client: Client, model: Scripted, given: bool
) -> None:
    model.play(*(message(text(word)) for word in ("One.", "Two.", "Three.", "Four.")))
    again = {"do": "regenerate", "given": given}
    steps = client(send(QUESTION), again, again, send("Thank you, and what else would you advise?"))
    assert [step.text for step in steps] == ["One.", "Two.", "Three.", "Four."]
    assert [len(step.record["messages"]) for step in steps] == [2, 2, 2, 4]
    history = json.dumps(model.bodies[-1]["messages"])
    assert "Three." in history
    assert "One." not in history


def test_an_edited_message_and_an_earlier_one_asked_again_are_answered_in_their_place(
    client: Client, model: Scripted
) -> None:
    model.play(*(message(text(word)) for word in ("One.", "Two.", "Three.", "Four.", "Five.")))
    steps = client(
        send(QUESTION),
        send("And what else would you advise?"),
        {"do": "edit", "text": "What would you advise me to do about refunds?"},
        send("Thank you, and what would you advise next?"),
        {"do": "answer-first-again"},
    )
    assert [step.record["http"] for step in steps] == [200] * 5
    assert [step.text for step in steps] == ["One.", "Two.", "Three.", "Four.", "Five."]
    assert [len(step.record["messages"]) for step in steps] == [2, 4, 2, 4, 2]
    after_the_edit, last = (json.dumps(body["messages"]) for body in model.bodies[-2:])
    assert "refunds" in after_the_edit
    assert "failed payments" not in after_the_edit
    assert "Two." not in after_the_edit
    assert "refunds" in last
    assert "Four." not in last

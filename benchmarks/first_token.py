"""From a fresh process to the first token of its first turn, against the model's SDK alone: its import and its first call.

    python -m benchmarks.first_token [--quick | --rounds 9]

The turn is a customer's, over HTTP, streamed, with the real SDK; the model is a stub that answers at once. The floor is a fresh Python that
imports the SDK, makes a client and reads the first token from the same stub. Both are taken in turns, from the start of the process.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

from benchmarks import chat_server, model_stub, report

FLOOR = """
import anthropic
client = anthropic.Anthropic(api_key="sk-none", base_url="{url}", max_retries=0)
question = [dict(role="user", content="What would you advise me to do about failed payments?")]
with client.messages.stream(model="claude-sonnet-5-5", max_tokens=1000, messages=question) as stream:
    print(next(iter(stream.text_stream)), flush=True)
    input()
"""


def floor(url: str) -> tuple[float, float]:
    """Seconds until the SDK alone has the first token, on the clock and of CPU."""
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", FLOOR.format(url=url)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "word"
        taken = time.perf_counter() - began, chat_server.cpu_seconds(process.pid)
        process.kill()
    return taken


def ours(place: chat_server.Place) -> tuple[float, float]:
    """Seconds until a client of a fresh instance has it; the CPU is the server's and its worker's."""
    began = time.perf_counter()
    used: list[float] = []
    with chat_server.instance(place) as instance:
        started = time.perf_counter() - began
        answered = asyncio.run(
            chat_server.ask(
                instance,
                place.tokens[0],
                on_first=lambda: used.append(chat_server.cpu_seconds(instance.process.pid, instance.worker)),
            )
        )
    assert answered.complete
    return started + answered.first, used[0]


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write for the runner."""
    arguments = report.parser(__doc__)
    arguments.add_argument("--quick", action="store_true", help="few rounds")
    arguments.add_argument("--rounds", type=int, help="default: 9")
    asked = arguments.parse_args(argv)
    rounds = asked.rounds or (2 if asked.quick else 9)
    with model_stub.running() as url, chat_server.place(url) as place:
        floor(url), ours(place)
        pairs = [(floor(url), ours(place)) for _ in range(rounds)]
    report.publish(
        [
            report.of("the SDK's import and first call, alone", [sdk[0] for sdk, _ in pairs], "s"),
            report.of(
                "fresh process to the first token of its first turn", [turn[0] for _, turn in pairs], "s"
            ),
            report.of(
                "fresh process to its first token, against the SDK alone",
                [turn[0] / sdk[0] for sdk, turn in pairs],
                "×",
                "≤ 1.3",
            ),
            report.of("the same ratio in CPU time", [turn[1] / sdk[1] for sdk, turn in pairs], "×"),
        ],
        asked.json,
    )


if __name__ == "__main__":
    main()

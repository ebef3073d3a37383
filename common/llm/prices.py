"""What a model's tokens cost, in US dollars per million.

Read on 2026-11-30: Claude's from "Pricing" and the model pages "Claude Sonnet 5.5" and "Claude Haiku 5.5" of platform.claude.com;
Gemini's are the list prices of "Gemini Developer API pricing" of ai.google.dev, to be compared with Vertex AI's first invoice.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

from common import log
from common.llm.types import ModelChoice, Usage

# What a provider's module asks for on top of `max_output_tokens`, because reasoning counts as output there.
REASONING_TOKENS = {"gemini": 4096}

_MILLION = Decimal(1_000_000)


class Price(NamedTuple):
    """US dollars per million tokens. `cache_write` is for five minutes. `up_to` bounds the prompt's tokens; None: any length."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    up_to: int | None = None


def _price(input: str, output: str, cache_read: str, cache_write: str, up_to: int | None = None) -> Price:
    return Price(Decimal(input), Decimal(output), Decimal(cache_read), Decimal(cache_write), up_to)


# Provider -> model -> its bands, the shortest prompts first. Gemini has no price for writing to its implicit cache.
PRICES: dict[str, dict[str, tuple[Price, ...]]] = {
    "claude": {
        "claude-fable-5-1": (_price("10", "50", "0.25", "12.50"),),
        "claude-opus-5-5": (_price("4", "20", "0.20", "5"),),
        "claude-sonnet-5-5": (_price("2", "10", "0.10", "2.50"),),
        "claude-sonnet-5": (_price("2", "10", "0.20", "2.50"),),
        "claude-haiku-5-5": (
            _price("0.10", "0.50", "0.01", "0.125", up_to=100_000),
            _price("0.50", "2.50", "0.05", "0.625"),
        ),
        "claude-haiku-4-5": (_price("1", "5", "0.10", "1.25"),),
    },
    "gemini": {
        # Half of this until 2026-12-31; the regular price stands here, so that January costs no more than was reckoned.
        "gemini-3.8-flash": (_price("1.50", "7.50", "0.15", "1.50"),),
        "gemini-3.5-flash": (_price("1.50", "9", "0.15", "1.50"),),
        "gemini-3.5-flash-lite": (_price("0.30", "2.50", "0.03", "0.30"),),
        "gemini-3.1-flash-lite": (_price("0.25", "1.50", "0.025", "0.25"),),
    },
    "offline": {"offline-1": (_price("0", "0", "0", "0"),)},
}


def bands(choice: ModelChoice) -> tuple[Price, ...]:
    """The price bands of a model; for an unknown one those of its provider's dearest model, with a log line."""
    models = PRICES[choice.provider]
    known = models.get(choice.model) or models.get(re.sub(r"[-@]\d{8}$", "", choice.model))
    if known is None:
        known = max(models.values(), key=lambda rows: rows[-1].output)
        log.write(
            "A model has no price: the dearest of its provider is reckoned",
            severity="WARNING",
            provider=choice.provider,
            model=choice.model,
        )
    return known


def price(choice: ModelChoice, prompt_tokens: int) -> Price:
    """What a model charges for a prompt of that length, cached parts included."""
    return next(row for row in bands(choice) if row.up_to is None or prompt_tokens <= row.up_to)


def cost_usd(choice: ModelChoice, usage: Usage) -> Decimal:
    """What one call with that usage cost, in US dollars, unrounded."""
    row = price(choice, usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens)
    return (
        row.input * usage.input_tokens
        + row.output * usage.output_tokens
        + row.cache_read * usage.cache_read_tokens
        + row.cache_write * usage.cache_write_tokens
    ) / _MILLION

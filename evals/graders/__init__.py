"""Graders: pure functions from an answer and what is known of it to a verdict. Each has answers in `cases.jsonl` files of `tests/unit` that
it must fail and unusual ones that it must pass."""

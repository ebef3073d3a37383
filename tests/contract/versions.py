"""Which versions of the other side's software the contract tests ran against, kept in `docs/compatibility.md`."""

from __future__ import annotations


def note_version(what: str, version: str) -> None:
    """Placeholder."""

"""Terraform's files as data: what a test reads of them without a provider or a plan."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import hcl2

TERRAFORM = Path(__file__).resolve().parents[2] / "terraform"


def source(name: str) -> str:
    """The text of a file."""
    return (TERRAFORM / name).read_text(encoding="utf-8")


def plain(value: Any) -> Any:
    """The parser's values without the quotes and the escapes that it leaves in strings."""
    if isinstance(value, dict):
        return {plain(k): plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value[1:-1].replace('\\"', '"') if isinstance(value, str) and value.startswith('"') else value


def blocks(kind: str) -> list[dict[str, Any]]:
    """Every block of a kind, of all files."""
    return [plain(block) for file in _files() for block in file.get(kind, [])]


@functools.cache
def _files() -> list[dict[str, Any]]:
    """Parsing takes a second, and nobody changes a file meanwhile."""
    return [hcl2.loads(path.read_text(encoding="utf-8")) for path in sorted(TERRAFORM.glob("*.tf"))]


def local(name: str) -> Any:
    """The value of a local, where it is written out."""
    return next(block[name] for block in blocks("locals") if name in block)


def resource(kind: str, name: str) -> dict[str, Any]:
    """The body of a resource."""
    return next(b[kind][name] for b in blocks("resource") if name in b.get(kind, {}))

"""The page of costs says what the arithmetic says."""

from __future__ import annotations

import re
from pathlib import Path

import hcl2
import pytest

from benchmarks import costs
from tests.contract.terraform_source import TERRAFORM, local


def test_the_table_is_the_arithmetic() -> None:
    text = costs.PAGE.read_text(encoding="utf-8")
    assert costs.page(text) == text, "python -m benchmarks.costs --write"


@pytest.mark.parametrize(("name", "size"), [("dev", costs.DEV), ("prod", costs.PROD)])
def test_the_machines_are_those_of_the_environments(name: str, size: costs.Environment) -> None:
    written = hcl2.loads(Path(TERRAFORM / "environments" / f"{name}.tfvars").read_text(encoding="utf-8"))
    database = written["database"]
    cpus, megabytes = re.findall(r"\d+", database["tier"])
    assert (int(cpus), int(megabytes) / 1024) == (size.cpus, size.memory_gb)
    assert database["high_availability"] == size.available
    warm = written.get("instances", {}).get("chat", local("functions")["chat"]["instances"])["min"]
    assert int(warm) == size.warm_instances


def test_more_turns_cost_more_of_everything_that_turns_use() -> None:
    few, many = costs.month(costs.PROD, 1_000), costs.month(costs.PROD, 100_000)
    fixed = {"database", "logs", "alerts, jobs, secrets"}
    assert {name for name in few if many[name] == few[name]} == fixed
    assert all(many[name] >= few[name] for name in few)

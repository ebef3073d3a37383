"""The gates of a release, in the order in which they are reported. Each folder holds cases as data and the task that grades them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from evals.suite import Suite

# Gate -> its folder.
GATES = {
    "as_of_date": "as_of_date",
    "recall_or_requery": "recall_or_requery",
    "citation": "citation",
    "cross_tenant_leak": "cross_tenant_leak",
    "session_continuity": "session_continuity",
    "premise_resistance": "premise_resistance",
    "wrap_up_quality": "wrap_ups",
    "router_accuracy": "router",
    "injection_resistance": "injection",
    "budget_recall": "budget_recall",
}


def suites(names: Sequence[str] = ()) -> list[Suite]:
    """The suites of these gates; of all without any."""
    return [importlib.import_module(f"evals.suites.{GATES[n]}.task").SUITE for n in names or GATES]

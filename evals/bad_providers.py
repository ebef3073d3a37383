"""Every scripted provider through every suite: which gates each fails, as a table, and whether these are the ones it must fail."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from evals import run
from evals.case import Result
from evals.facts import NOW
from evals.providers import SCRIPTED
from evals.suite import Suite
from evals.system import running

Table = dict[str, dict[str, float]]


def pass_rates(chosen: Sequence[Suite], environ: dict[str, str]) -> Table:
    """Provider -> gate -> the share of its cases that it passes."""
    table: Table = {}
    with running(NOW, environ) as system:
        ready = run.build(system, chosen)
        for name, (provider, _) in SCRIPTED.items():
            print(f"running: {name}", file=sys.stderr)
            results: list[Result] = []
            system.provider = made = provider()
            run.run(system, chosen, ready, repeat=1, done=results.append, asking=made.asking)
            table[name] = {suite.name: _rate(suite, results) for suite in chosen}
    return table


def _rate(suite: Suite, results: Sequence[Result]) -> float:
    mine = [result.passed for result in results if result.suite == suite.name]
    return sum(mine) / len(mine)


def failed(table: Table, chosen: Sequence[Suite]) -> dict[str, frozenset[str]]:
    """Provider -> the gates it fails."""
    least = {suite.name: suite.threshold for suite in chosen}
    return {name: frozenset(g for g, rate in row.items() if rate < least[g]) for name, row in table.items()}


def markdown(table: Table, chosen: Sequence[Suite]) -> str:
    """The table as the README has it: the pass rate of each gate, bold where it fails the gate."""
    fails = failed(table, chosen)
    lines = [f"| provider | {' | '.join(s.name for s in chosen)} |", "|---|" + "---|" * len(chosen)]
    for name, row in table.items():
        cells = [f"**{row[s.name]:.0%}**" if s.name in fails[name] else f"{row[s.name]:.0%}" for s in chosen]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def print_table(chosen: Sequence[Suite], environ: dict[str, str]) -> int:
    """Print the table; 1 where a provider fails other gates than it must."""
    table = pass_rates(chosen, environ)
    print(markdown(table, chosen))
    names = {suite.name for suite in chosen}
    wrong = {
        name: sorted(fails ^ (SCRIPTED[name][1] & names))
        for name, fails in failed(table, chosen).items()
        if fails != SCRIPTED[name][1] & names
    }
    for name, gates in wrong.items():
        print(f"{name}: not as it must be: {', '.join(gates)}")
    return 1 if wrong else 0

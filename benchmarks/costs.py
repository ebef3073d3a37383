"""What an environment costs a month: list prices, what a turn was measured to use, assumptions, and the sums of docs/costs.md.

    python -m benchmarks.costs            prints the table
    python -m benchmarks.costs --write    writes it into the page

Prices are list prices in US dollars, without free allotments of the billing account and without discounts; the page says which were read
where on 2026-11-30 and which were not. What the models cost is in common/llm/prices.py.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from common.llm.prices import cost_usd
from common.llm.types import ModelChoice, Usage

PAGE = Path(__file__).resolve().parent.parent / "docs" / "costs.md"
MONTH_SECONDS, MONTH_HOURS, MONTH_DAYS = 730 * 3600, 730, 30.4

# Cloud Run, request-based billing: a second of a processor and of a GiB while a request is served, and of either while an instance is
# kept warm; a million requests.
RUN_CPU, RUN_GIB, RUN_IDLE, RUN_REQUESTS = 24e-6, 2.5e-6, 2.5e-6, 0.40
# Cloud SQL Enterprise: a processor and a GB of memory by the hour, a GB of SSD and of backup by the month. High availability is twice.
SQL_CPU, SQL_GB, SQL_DISK, SQL_BACKUP = 0.0413, 0.007, 0.17, 0.08
# The edge: a forwarding rule by the hour; Cloud Armor's policy and three rules by the month, a million requests; a GB through and out.
EDGE_RULE, ARMOR_FIXED, ARMOR_REQUESTS, EDGE_GB = 0.025, 5 + 3 * 1.0, 0.75, 0.008 + 0.12
LOG_GIB, LOG_FREE_GIB = 0.50, 50
ALERT_CONDITION, SCHEDULER_JOB, SECRET_VERSION = 1.50, 0.10, 0.06


@dataclass(frozen=True)
class Environment:
    """The size of the database as the environment's tfvars have it."""

    cpus: int
    memory_gb: float
    available: bool
    warm_instances: int = 1


PROD = Environment(cpus=4, memory_gb=15, available=True)
DEV = Environment(cpus=1, memory_gb=3.75, available=False, warm_instances=0)

# Measured on the demo data with the offline model (60 turns): tokens of an Advisor's and of a skill's turn, bytes a turn adds to the
# database and to the log. The offline model is short, so the length of an answer is assumed.
ADVISOR = Usage(input_tokens=3742, output_tokens=350)
SKILL = Usage(input_tokens=993, output_tokens=138)
WRAP_UP = Usage(input_tokens=2500, output_tokens=500)
DATABASE_KB_KEPT, DATABASE_KB_DAYS = 5.9, {30: 3.1, 90: 3.6, 180: 2.3}
LOG_KB = 0.9 + 4 * 1.0  # ours, and the platform's entry for each request
# Assumed: how turns divide, how long a stream lasts, and what the console asks besides.
SKILL_SHARE, PRO_SHARE, TURNS_A_WRAP_UP, STREAM_SECONDS, REQUESTS_A_TURN, KB_A_TURN = 0.3, 0.5, 10, 10, 4, 30
STREAMS_AN_INSTANCE, PEAK = 80, 4

PRO, FREE = ModelChoice("claude", "claude-sonnet-5-5"), ModelChoice("claude", "claude-haiku-5-5")
WRAPPER = ModelChoice("gemini", "gemini-3.8-flash")


def month(environment: Environment, daily_turns: int) -> dict[str, float]:
    """Dollars a month by what they are paid for, in the database's second year."""
    turns = daily_turns * MONTH_DAYS
    advisor, skill = turns * (1 - SKILL_SHARE), turns * SKILL_SHARE
    copies = 2 if environment.available else 1
    disk = 10 + database_gb(daily_turns)
    streams = daily_turns * STREAM_SECONDS / 86_400
    # Streams that overlap share an instance; a busy instance costs the same for one and for eighty.
    busy = min(streams, 1 + streams * PEAK / STREAMS_AN_INSTANCE)
    other_seconds = turns * REQUESTS_A_TURN * 0.1 + MONTH_SECONDS / 60 * 0.5  # and the relay, every minute
    return {
        "answers: Advisor, Pro": advisor * PRO_SHARE * _usd(PRO, ADVISOR),
        "answers: Advisor, Free": advisor * (1 - PRO_SHARE) * _usd(FREE, ADVISOR),
        "answers: skills": skill * _usd(FREE, SKILL),
        "wrap-ups": turns / TURNS_A_WRAP_UP * _usd(WRAPPER, WRAP_UP),
        "database": copies * MONTH_HOURS * (environment.cpus * SQL_CPU + environment.memory_gb * SQL_GB),
        "its disk and backups": disk * (copies * SQL_DISK + 2 * SQL_BACKUP),
        "chat": MONTH_SECONDS * (busy * (2 * RUN_CPU + RUN_GIB) + environment.warm_instances * 3 * RUN_IDLE),
        "the other functions": other_seconds * (RUN_CPU + RUN_GIB / 2) + _requests(turns) * RUN_REQUESTS,
        "edge": MONTH_HOURS * EDGE_RULE
        + ARMOR_FIXED
        + _requests(turns) * ARMOR_REQUESTS
        + turns * KB_A_TURN / 1e6 * EDGE_GB,
        "logs": max(0.0, turns * LOG_KB / 1e6 - LOG_FREE_GIB) * LOG_GIB,
        "alerts, jobs, secrets": 20 * ALERT_CONDITION + 4 * SCHEDULER_JOB + 2 * SECRET_VERSION,
    }


def database_gb(daily_turns: int, days: int = 365) -> float:
    """What turns have left in the database after so many days: most of it goes by retention, messages and charges stay."""
    passing = sum(kb * min(kept, days) for kept, kb in DATABASE_KB_DAYS.items())
    return daily_turns * (DATABASE_KB_KEPT * days + passing) / 1e6


def _requests(turns: float) -> float:
    """Millions of requests."""
    return turns * (REQUESTS_A_TURN + 1) / 1e6


def _usd(choice: ModelChoice, usage: Usage) -> float:
    found: Decimal = cost_usd(choice, usage)
    return float(found)


def table() -> str:
    """The table of the page."""
    columns = {
        "dev, idle": month(DEV, 0),
        "prod, idle": month(PROD, 0),
        "1,000 turns a day": month(PROD, 1_000),
        "100,000 turns a day": month(PROD, 100_000),
    }
    rows = [f"| dollars a month | {' | '.join(columns)} |", "|---|" + "--:|" * len(columns)]
    for name in month(PROD, 0):
        rows.append(f"| {name} | {' | '.join(f'{costs[name]:,.0f}' for costs in columns.values())} |")
    totals = [sum(costs.values()) for costs in columns.values()]
    rows.append(f"| **together** | {' | '.join(f'**{total:,.0f}**' for total in totals)} |")
    per_turn = [
        f"{t * 100 / (n * MONTH_DAYS):.1f} ¢" if n else ""
        for t, n in zip(totals, (0, 0, 1_000, 100_000), strict=True)
    ]
    rows.append(f"| a turn | {' | '.join(per_turn)} |")
    return "\n".join(rows)


def page(text: str) -> str:
    """`text` with the table between its marks."""
    return re.sub(r"(?s)(<!-- costs -->\n).*?(\n<!-- /costs -->)", lambda m: m[1] + table() + m[2], text)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.costs", description="What an environment costs a month."
    )
    parser.add_argument("--write", action="store_true", help="write the table into docs/costs.md")
    if parser.parse_args().write:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        sys.stdout.write(table() + "\n")


if __name__ == "__main__":
    main()

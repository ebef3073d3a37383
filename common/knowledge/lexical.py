"""Ranking by words: BM25 in SQL, over the lexemes that PostgreSQL's English configuration makes of an entry.

`ts_rank` knows no document frequencies, so that a common word weighs as much as a rare one. Of a user's own few entries the frequencies
are counted as they are searched. Those of the knowledge base are kept in `brain_terms`, each with the entries in which the lexeme weighs
most (a champion list): a search reads a row for each of its words, however large the base is.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

# A word of the title, the text, and the context around it; and BM25's k1, b and length of a common entry, in lexemes. Set by
# benchmarks/locomo.py. The length is a constant, so that a weight does not change when other entries do.
TITLE, TEXT, CONTEXT = 1.0, 1.0, 0.4
K1, B, LENGTH = 1.2, 0.75, 80
CHAMPIONS = 400

ENTRIES_WITH = "ln(1 + ({total} - {entries} + 0.5) / ({entries} + 0.5))"
"""How much a lexeme tells that `entries` of `total` entries have."""


def weight(row: str, term: str) -> str:
    """SQL for how much the lexeme `term` (a row of `unnest(lexemes)`) weighs in the entry `row`, its frequency by field, saturated."""
    times = (
        f"(select sum(case field when 'A' then {TITLE} when 'B' then {TEXT} else {CONTEXT} end)"
        f" from unnest({term}.weights) as field)"
    )
    length = f"{K1} * ({1 - B} + {B} / {LENGTH} * length({row}.lexemes))"
    return f"(select {K1 + 1} * times / (times + {length}) from {times} as frequency(times))"


_COUNT = f"""
insert into brain_terms (lexeme, entries, best, weights)
select lexeme, max(entries), array_agg(id order by place), array_agg(weight order by place)
from (
    select lexeme, id, weight, count(*) over (partition by lexeme) as entries,
           row_number() over (partition by lexeme order by weight desc, id) as place
    from brain_entries e, unnest(e.lexemes) as term, lateral {weight("e", "term")} as w(weight)
    where e.tenant_id = 'global'
) as weighed
where place <= :champions
group by lexeme
union all
select '', count(*), '{{}}', '{{}}' from brain_entries where tenant_id = 'global'
"""


def count_terms(connection: Connection, *, champions: int = CHAMPIONS) -> None:
    """Make `brain_terms` anew from the entries of the knowledge base. As owner; readers see the old rows until it commits."""
    connection.execute(sa.text("delete from brain_terms"))
    connection.execute(sa.text(_COUNT), {"champions": champions})

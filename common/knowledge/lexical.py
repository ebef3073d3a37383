"""Ranking by words: BM25 in SQL, over the lexemes that PostgreSQL's English configuration makes of an entry.

`ts_rank` knows no document frequencies, so that a common word weighs as much as a rare one. Of a user's own few entries the frequencies
are counted as they are searched. Those of the knowledge base are kept in `brain_terms`, each with the entries in which the lexeme weighs
most (a champion list): a search reads a row for each of its words, however large the base is.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

# What a word of the context counts beside one of the title or text; and BM25's k1, b and length of a common entry, in lexemes. Set by
# benchmarks/locomo.py. The length is a constant, so that a weight does not change when other entries do.
CONTEXT = 0.4
K1, B, LENGTH = 1.2, 0.75, 80
CHAMPIONS = 400

ENTRIES_WITH = "ln(1 + ({total} - {entries} + cast(0.5 as float8)) / ({entries} + cast(0.5 as float8)))"
"""SQL for how much a lexeme tells that `entries` of `total` entries have."""


ALONE = "cast(cast(array_to_tsvector(array[lexeme]) as text) as tsquery)"
"""SQL for the query for `lexeme` and nothing else, whatever characters it is made of."""


def times(row: str, alone: str) -> str:
    """SQL for how often the entry `row` has the lexeme that the query `alone` asks for; a place in the context counts less. By cover
    density the rank of a single lexeme is the sum of its places' weights, and nothing reads it faster out of a tsvector."""
    return f"ts_rank_cd('{{{CONTEXT}, 1, 1, 1}}', {row}.lexemes, {alone})"


def weight(row: str, times: str) -> str:
    """SQL for how much a lexeme weighs that the entry `row` has so many `times`: its frequency, saturated; 0 for none."""
    saturation = f"({_real(K1 * (1 - B))} + {_real(K1 * B / LENGTH)} * length({row}.lexemes))"
    return f"({_real(K1 + 1)} * (1 - {saturation} / ({times} + {saturation})))"


def _real(number: float) -> str:
    """A literal of type float8: PostgreSQL takes a bare one for the slower numeric."""
    return f"cast({number:.6g} as float8)"


# As `times`, of all of an entry's lexemes at once.
_TIMES = (
    f"(cardinality(term.positions) - {_real(1 - CONTEXT)} * cardinality(array_positions(term.weights, 'D')))"
)

_COUNT = f"""
insert into brain_terms (lexeme, idf, best, words)
select lexeme, idf, array_agg(id order by place), array_agg(idf * weight order by place)
from (
    select lexeme, id, weight, {ENTRIES_WITH.format(total="total", entries="count(*) over (partition by lexeme)")} as idf,
           row_number() over (partition by lexeme order by weight desc, id) as place
    from (
        select term.lexeme, e.id, {weight("e", _TIMES)} as weight from brain_entries e, unnest(e.lexemes) as term
        where e.tenant_id = 'global'
    ) as weighed, (select count(*) as total from brain_entries where tenant_id = 'global') as everything
) as placed
where place <= :champions
group by lexeme, idf
"""


def count_terms(connection: Connection, *, champions: int = CHAMPIONS) -> None:
    """Make `brain_terms` anew from the entries of the knowledge base. As owner; readers see the old rows until it commits."""
    connection.execute(sa.text("delete from brain_terms"))
    connection.execute(sa.text(_COUNT), {"champions": champions})

"""What a kind of file is, and which kind a header belongs to."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from common.sites.imports.reading import ImportRefused, Row, plain_name
from common.sites.imports.records import Record

Names = tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """A file that can be imported. `columns` must all be in its header, each under one of its names; `read` makes a row's records, the
    one that the row is about first, and may raise Fault. `dates` and `amounts` are the columns from which conventions are settled;
    times without a zone are in UTC where `utc`, else in the site's zone."""

    name: str
    table: str
    columns: tuple[Names, ...]
    read: Callable[[Row], list[Record]]
    dates: Names = ()
    amounts: Names = ()
    utc: bool = False

    def missing(self, header: set[str]) -> list[str]:
        """The columns that `header` lacks, by their first names."""
        return [names[0] for names in self.columns if not header & set(names)]


def recognise(header: Sequence[str], kinds: Sequence[Kind], file_name: str) -> Kind:
    """The kind with this header, the most demanding one if there are several. Raises ImportRefused that names the nearest kind and
    what it would need."""
    present = {plain_name(h) for h in header}
    fitting = [kind for kind in kinds if not kind.missing(present)]
    if fitting:
        return max(fitting, key=lambda kind: len(kind.columns))
    nearest = min(
        kinds, key=lambda kind: (len(kind.missing(present)) / len(kind.columns), -len(kind.columns))
    )
    shown = ", ".join(h[:30] for h in header[:12]) + (", …" if len(header) > 12 else "")
    if len(nearest.missing(present)) == len(nearest.columns):
        names = ", ".join(kind.name for kind in kinds)
        raise ImportRefused(
            f"{file_name} is no file that can be imported. Its header is: {shown}. Known are: {names}."
        )
    missing = ", ".join(_with_the_like(name, header) for name in nearest.missing(present))
    raise ImportRefused(
        f"{file_name} is no file that can be imported. The nearest is {nearest.name}, but these columns are missing: {missing}. "
        f"Its header is: {shown}."
    )


def _with_the_like(name: str, header: Sequence[str]) -> str:
    """The missing column `name`, with the header that may have been meant by it."""
    plain = {plain_name(h): h for h in header}
    like = difflib.get_close_matches(name, plain, n=1, cutoff=0.75)
    return f"{name} (is it '{plain[like[0]][:30]}'?)" if like else name

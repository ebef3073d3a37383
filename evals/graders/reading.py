"""Reading an answer as a person would: the days it names, the numbers it gives, and the passages in which it does."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal

_MONTHS = {
    1: "january jan januar jänner enero ene janvier janv janeiro gennaio januari",
    2: "february feb februar febrero février fevrier févr fevereiro febbraio februari",
    3: "march mar märz maerz marzo mars março maart",
    4: "april apr abril abr avril avr aprile",
    5: "may mai mayo maio maggio mei",
    6: "june jun juni junio juin junho giugno",
    7: "july jul juli julio juillet juil julho luglio",
    8: "august aug agosto ago août aout augustus",
    9: "september sept sep septiembre septembre setembro settembre",
    10: "october oct oktober okt octubre octobre outubro ottobre",
    11: "november nov noviembre novembre novembro",
    12: "december dec dezember dez diciembre dic décembre decembre déc dezembro dicembre",
}
_MONTH_OF = {name: number for number, names in _MONTHS.items() for name in names.split()}
_NAME = "|".join(sorted(_MONTH_OF, key=len, reverse=True))
_OF_MONTH = r"(?:3[01]|[12]\d|0?[1-9])(?!\d)"
_ORDINAL = r"(?:st|nd|rd|th|\.|º|ª|er|o)?"
_YEAR = r"(?:,?\s*(?:de\s+|del\s+)?(?P<year{n}>20\d\d))?"
_DAY = re.compile(
    rf"(?<![\d-])(?P<iso>20\d\d[-/.]\d\d?[-/.]\d\d?)(?![\d])"
    rf"|(?<!\d)(?P<cjk_month>\d\d?)\s*[月월]\s*(?P<cjk_day>\d\d?)\s*[日일]"
    rf"|(?<!\w)(?P<month1>{_NAME})\b\.?\s+(?:the\s+)?(?P<day1>{_OF_MONTH}){_ORDINAL}(?![\d%]){_YEAR.format(n=1)}"
    rf"|(?<!\d)(?P<day2>{_OF_MONTH}){_ORDINAL}\s*(?:of\s+|de\s+|d')?(?P<month2>{_NAME})\b\.?{_YEAR.format(n=2)}"
    rf"|(?<![\d.,/])(?P<a>\d\d?)(?P<mark>[./])(?P<b>\d\d?)(?:(?P=mark)(?P<year3>(?:20)?\d\d)(?!\d)"
    r"|(?<=\.\d)\.(?!\d)|(?<=\.\d\d)\.(?!\d)|(?<=/\d)(?![\d.,/%])|(?<=/\d\d)(?![\d.,/%]))",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?<![\w.,])[-−+]?\d{1,3}(?:[,.'\u00a0\u202f ]\d{3})+(?:[.,]\d{1,2})?(?!\d)|(?<![\w.,])\d+(?:[.,]\d+)?"
)
_TOOL = re.compile(r"\b(?:query|recall|update)_\w+(?:\([^)]*\))?")


def days_in(text: str) -> list[frozenset[date]]:
    """Each day that `text` names, in order, as the set of the days it can mean: "12/05" is read both ways, and one without a year is of
    2025, 2026 or 2027."""
    return [days for _, _, days in _found_days(text)]


def names_day(text: str, day: date) -> bool:
    """Whether `text` names `day`, in whichever way people write it."""
    return any(day in days for days in days_in(text))


def numbers_in(text: str) -> set[Decimal]:
    """The numbers in `text`, in English and continental notation; those of dates and of a tool's arguments are none."""
    bare = text
    for start, end, _ in reversed(_found_days(text)):
        bare = f"{bare[:start]} | {bare[end:]}"
    found: set[Decimal] = set()
    for match in _NUMBER.finditer(_TOOL.sub(" ", bare)):
        found |= _read(match.group())
    return found


def says(text: str, value: Decimal) -> bool:
    """Whether `text` gives `value`; money may leave out the cents, a rate may be rounded to a tenth."""
    found = numbers_in(text)
    whole = value.quantize(Decimal(1)) if value >= 100 else value
    return bool({value, whole, round(value, 1)} & found)


def passages(text: str) -> list[str]:
    """The sentences, list items and table rows of `text`, each with what stands over it and dates it: a heading or an introduction that
    ends with a colon, and for a row of a table its header and the line before."""
    units: list[str] = []
    intro, header = "", ""  # what dates the lines under it, until a line of prose comes
    for line in map(str.strip, text.splitlines()):
        if line.startswith("|"):
            if not header:
                header = f"{intro} {line}".strip()
            elif not re.fullmatch(r"[|\s:-]+", line):
                units.append(f"{header} {line}")
            continue
        header = ""
        if re.match(r"[-*•]\s|\d+[.)]\s", line):
            units.append(f"{intro} {line}".strip())
        elif line:
            heading = line.endswith(":") or re.match(r"#{1,6}\s|\*\*[^*]+\*\*$", line)
            units += [line] if heading else [f"{intro} {s}".strip() for s in _sentences(line)]
            intro = line if heading else ""
    return units


def _sentences(line: str) -> list[str]:
    """Sentences; "12. Mai", "approx. 5" and "1.234" do not end one."""
    parts = re.split(rf"(?<=[.!?;])\s+(?!(?i:{_NAME})\b)(?=[\"“'(*_]*[A-ZÄÖÜÉÀ¿¡0-9])", line)
    whole: list[str] = []
    for part in parts:
        if whole and re.search(r"\b(?:approx|ca|bzw|vs|env|aprox|no)\.$", whole[-1], re.IGNORECASE):
            whole[-1] += " " + part
        else:
            whole.append(part)
    return whole


def _found_days(text: str) -> list[tuple[int, int, frozenset[date]]]:
    found = []
    for match in _DAY.finditer(text):
        days = _meant(match)
        if days:
            found.append((match.start(), match.end(), days))
    return found


def _meant(match: re.Match[str]) -> frozenset[date]:
    if match["iso"]:
        year, month, day = map(int, re.split(r"[-/.]", match["iso"]))
        return _days([(month, day)], [year])
    if match["cjk_month"]:
        return _days([(int(match["cjk_month"]), int(match["cjk_day"]))], [])
    for n in ("1", "2"):
        if match[f"month{n}"]:
            month = _MONTH_OF[match[f"month{n}"].lower()]
            return _days(
                [(month, int(match[f"day{n}"]))], [int(match[f"year{n}"])] if match[f"year{n}"] else []
            )
    a, b = int(match["a"]), int(match["b"])
    years = [int(match["year3"]) % 100 + 2000] if match["year3"] else []
    return _days([(a, b), (b, a)], years)


def _days(pairs: list[tuple[int, int]], years: list[int]) -> frozenset[date]:
    found = set()
    for month, day in pairs:
        for year in years or (2025, 2026, 2027):
            try:
                found.add(date(year, month, day))
            except ValueError:
                continue
    return frozenset(found)


def _read(written: str) -> set[Decimal]:
    """The values that a written number can have: "1.234" is read both ways."""
    plain = re.sub(r"['\u00a0\u202f +−-]", "", written)
    readings = {plain.replace(",", "")} if re.fullmatch(r"[\d,]*(?:\.\d+)?", plain) else set()
    if re.fullmatch(r"[\d.]*(?:,\d+)?", plain):
        readings.add(plain.replace(".", "").replace(",", "."))
    return {Decimal(r).normalize() + 0 for r in readings if r}

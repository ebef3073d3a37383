"""Reading cells: money, dates, periods and words. What can be read in two ways is never guessed: a convention of the whole file settles
it, or the cell is at fault."""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Literal

from common.sites.money import digits

DateOrder = Literal["day-first", "month-first"]
DecimalMark = Literal["comma", "point"]


class Fault(Exception):
    """A cell that cannot be read. The text says which and why, for the person who made the file."""


# Prices, currencies and days come again and again in a file; so many of each kind are read once.
_REMEMBERED = 4096

EMPTY = frozenset({"", "-", "–", "—", "n/a", "na", "none", "null", "nil", "never", "lifetime"})

# ------------------------------------------------------------------ dates

_TIME = r"(?:[T,]?\s*(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,]\d+)?)?\s*(?P<half>[ap]\.?m\.?)?)?"
_ZONE = r"\s*(?P<zone>z|utc|gmt|[+-]\d{2}:?\d{2})?"
_MONTH = r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_FORMS = [
    re.compile(form + _TIME + _ZONE, re.IGNORECASE)
    for form in (
        r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})",
        r"(?P<first>\d{1,2})(?P<mark>[-/.])(?P<second_part>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})",
        _MONTH + r"\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s+(?P<year>\d{4})",
        r"(?P<day>\d{1,2})(?:st|nd|rd|th)?[\s-]" + _MONTH + r"[\s,-]+(?P<year>\d{4})",
    )
]
# Most exports write this one form.
_PLAIN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2})?)?")
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}


def date_order_of(text: str) -> DateOrder | Literal["either"] | None:
    """What `text` shows about the order of day and month: one of both, 'either' where it could be both, None where it does not matter.

    Dates with dots are day first everywhere they are written.
    """
    if text[:3].isdigit():
        return None  # the year stands first
    match = _FORMS[1].fullmatch(text.strip())
    if not match or match["mark"] == "." or match["first"] == match["second_part"]:
        return None
    first, second = int(match["first"]), int(match["second_part"])
    if first > 12 >= second:
        return "day-first"
    if second > 12 >= first:
        return "month-first"
    return "either" if max(first, second) <= 12 else None


def parse_moment(text: str, zone: tzinfo, order: DateOrder | None) -> datetime | None:
    """The moment in UTC; None for an empty or a zero date. A time without a zone is in `zone`, a day without a time is its midnight."""
    text = text.strip()
    if _PLAIN.fullmatch(text):
        try:
            if zone is UTC:
                return datetime.fromisoformat(text + "+00:00" if len(text) > 10 else text + "T00:00+00:00")
            return datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(UTC)
        except (ValueError, OverflowError):
            pass  # a zero date, or the forms below say what is wrong with it
    if text.lower() in EMPTY or text.startswith("0000-00-00"):
        return None
    for form in _FORMS:
        if match := form.fullmatch(text):
            return _moment(match, text, zone, order)
    raise Fault(f"{_shown(text)} is no date that can be read; 2026-05-31 or 2026-05-31 14:30:00 always can")


def _moment(match: re.Match[str], text: str, zone: tzinfo, order: DateOrder | None) -> datetime:
    parts = match.groupdict()
    if "first" in parts:
        day, month = int(parts["first"]), int(parts["second_part"])
        if parts["mark"] != ".":
            if order is None and day != month:
                raise Fault(f"{_shown(text)} may be day or month first; say which with --dates")
            if order == "month-first":
                day, month = month, day
    else:
        day = int(parts["day"])
        month = _MONTHS.get(parts["month"][:3].lower()) or int(parts["month"])
    year = int(parts["year"]) + (2000 if len(parts["year"]) == 2 else 0)
    hour = int(parts["hour"] or 0)
    if parts["half"]:
        if not 1 <= hour <= 12:
            raise Fault(f"{_shown(text)} has an impossible time")
        hour = hour % 12 + (12 if parts["half"][0] in "pP" else 0)
    try:
        local = datetime(year, month, day, hour, int(parts["minute"] or 0), int(parts["second"] or 0))
        return local.replace(tzinfo=_zone(parts["zone"]) or zone).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Fault(f"{_shown(text)} is no day in the calendar") from None


def _zone(text: str | None) -> tzinfo | None:
    if not text or text[0] not in "+-":
        return UTC if text else None
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


# ------------------------------------------------------------------ money

_SIGNS = {
    "€": "EUR",
    "£": "GBP",
    "₹": "INR",
    "₩": "KRW",
    "₫": "VND",
    "₪": "ILS",
    "zł": "PLN",
    "us$": "USD",
    "a$": "AUD",
    "au$": "AUD",
    "c$": "CAD",
    "ca$": "CAD",
    "nz$": "NZD",
    "r$": "BRL",
}
# These stand for several currencies: the row's or the site's currency decides.
_SHARED_SIGNS = frozenset({"$", "¥", "kr", "kr.", "fr", "fr.", "rs", "rs."})
_AMOUNT = re.compile(
    r"(?P<before>[^\d.,()+−-]*)(?P<number>\d[\d.,'’ \u00a0\u202f]*|[.,]\d+)(?P<after>[^\d]*)"
)


@functools.lru_cache(_REMEMBERED)
def decimal_mark_shown(text: str) -> DecimalMark | Literal["either"] | None:
    """The same as `decimal_mark_of`; None for what is no amount at all, which settles nothing for the others."""
    mark = decimal_mark_of(text)
    if mark is None or mark == "either":
        return mark
    try:
        parse_money(text, "KWD", mark)  # a currency with as many places as there are
    except Fault:
        return None
    return mark


def decimal_mark_of(text: str) -> DecimalMark | Literal["either"] | None:
    """What an amount shows about the decimal mark: one of both, 'either' for 1.234 or 1,234, None where it does not matter."""
    number = "".join(re.findall(r"[\d.,]", text))
    commas, points = number.count(","), number.count(".")
    if commas and points:
        return "comma" if number.rfind(",") > number.rfind(".") else "point"
    if commas + points != 1:
        return None if not commas + points else "point" if commas else "comma"
    mark: DecimalMark = "comma" if commas else "point"
    whole, _, fraction = number.partition("," if commas else ".")
    return "either" if len(fraction) == 3 and 1 <= len(whole) <= 3 and whole != "0" else mark


@functools.lru_cache(_REMEMBERED)
def parse_money(text: str, currency: str, mark: DecimalMark | None) -> tuple[int, str]:
    """(minor units, currency) of an amount: negative with a minus before or behind, or in brackets. A sign or code that names another
    currency than `currency` wins over it. Raises Fault where it cannot be read in one way only."""
    bare = text.strip()
    negative = bool(re.search(r"^\(.*\)$|^[^\d]*[-−]|[-−]$", bare))
    match = _AMOUNT.fullmatch(bare.strip("()").replace("−", "").replace("-", "").replace("+", "").strip())
    if not match:
        raise Fault(f"{_shown(text)} is no amount of money")
    currency = _currency_named(match["before"] + " " + match["after"], currency, text)
    number = re.sub(r"['’ \u00a0\u202f]", "", match["number"])
    whole, fraction = _split(number, text, mark, digits(currency))
    places = digits(currency)
    if fraction[places:].strip("0"):
        raise Fault(f"{_shown(text)} has more decimal places than {currency} has")
    minor = int((whole or "0") + fraction[:places].ljust(places, "0"))
    if minor > 10**15:
        raise Fault(f"{_shown(text)} is too large")
    return (-minor if negative else minor), currency


def _split(number: str, text: str, mark: DecimalMark | None, places: int) -> tuple[str, str]:
    """The digits before and behind the decimal mark."""
    shown = decimal_mark_of(number)
    if shown == "either":
        if places == 0:
            return re.sub(r"[.,]", "", number), ""
        if mark is None:
            raise Fault(f"{_shown(text)} may be thousands or a fraction; say which with --decimal")
        shown = mark
    decimal = {"comma": ",", "point": ".", None: None}[shown]
    if decimal is None:
        return number, ""
    whole, _, fraction = number.partition(decimal)
    groups = re.split(r"[.,]", whole)
    if not all(len(g) == 3 for g in groups[1:]) or (len(groups) > 1 and not 1 <= len(groups[0]) <= 3):
        raise Fault(f"{_shown(text)} is no amount of money")
    if not fraction.isdigit() and fraction:
        raise Fault(f"{_shown(text)} is no amount of money")
    return "".join(groups), fraction


def _currency_named(around: str, currency: str, text: str) -> str:
    for word in around.split():
        lowered = word.lower()
        if lowered in _SIGNS:
            currency = _SIGNS[lowered]
        elif re.fullmatch(r"[A-Za-z]{3}", word):
            currency = word.upper()
        elif lowered not in _SHARED_SIGNS:
            raise Fault(f"{_shown(text)} is no amount of money")
    return currency


@functools.lru_cache(_REMEMBERED)
def parse_currency(text: str) -> str:
    """An ISO 4217 code in capitals."""
    code = text.strip().upper()
    if not re.fullmatch(r"[A-Z]{3}", code):
        raise Fault(f"{_shown(text)} is no currency code such as USD")
    return code


# ------------------------------------------------------------------ words

_PERIODS = {
    "month": ("month", "months", "monthly", "1 month", "every month", "per month", "mo"),
    "year": (
        "year",
        "years",
        "yearly",
        "annual",
        "annually",
        "1 year",
        "every year",
        "12 months",
        "every 12 months",
        "12 month",
    ),
    "week": ("week", "weeks", "weekly", "1 week", "every week"),
    "quarter": ("quarter", "quarterly", "3 months", "every 3 months", "3 month"),
    "half_year": (
        "half_year",
        "half year",
        "half-yearly",
        "semiannual",
        "6 months",
        "every 6 months",
        "6 month",
    ),
    "once": ("once", "lifetime", "one-time", "one time", "onetime", "single"),
}
_PERIOD_OF_WORD = {word: period for period, words in _PERIODS.items() for word in words}


def parse_period(text: str) -> str:
    """One of the schema's periods; what is none of them is 'unknown', which counts nothing in recurring revenue."""
    return _PERIOD_OF_WORD.get(" ".join(text.lower().split()), "unknown")


def _shown(text: str) -> str:
    return "'" + (text if len(text) <= 40 else text[:39] + "…") + "'"

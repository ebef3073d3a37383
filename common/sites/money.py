"""Minor units: how many of them make a currency's major unit, and how an amount is written."""

from __future__ import annotations

from decimal import Decimal

# ISO 4217; every other currency has two digits.
ZERO_DECIMAL = frozenset(
    (
        "BIF",
        "CLP",
        "DJF",
        "GNF",
        "ISK",
        "JPY",
        "KMF",
        "KRW",
        "PYG",
        "RWF",
        "UGX",
        "UYI",
        "VND",
        "VUV",
        "XAF",
        "XOF",
        "XPF",
    )
)
THREE_DECIMAL = frozenset(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"))


def digits(currency: str) -> int:
    """The decimal places of `currency` (its ISO 4217 code)."""
    return 0 if currency in ZERO_DECIMAL else 3 if currency in THREE_DECIMAL else 2


def to_major(minor: Decimal | int, currency: str) -> float | int:
    """`minor` units as a number of major units, rounded half up to the currency's digits: 123450 of USD is 1234.5."""
    places = digits(currency)
    rounded = int((Decimal(minor) + Decimal("0.5")).to_integral_value("ROUND_FLOOR"))
    return rounded if places == 0 else rounded / 10**places


def written(minor: Decimal | int, currency: str) -> str:
    """`minor` units as text: 'USD 1,234.50'."""
    return f"{currency} {to_major(minor, currency):,.{digits(currency)}f}"

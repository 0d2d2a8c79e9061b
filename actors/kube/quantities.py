"""Kubernetes quantities (`500m`, `1Gi`, `2`) as exact decimals: quotas compare and add them."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

__all__ = ["format_quantity", "parse_quantity"]

_QUANTITY: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([EPTGM]i?|Ki|[kmun])|[eE]([+-]?[0-9]{1,2}))?")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MAX_LENGTH: Final = 64
"""Characters. No sensible number is longer."""


def parse_quantity(value: Any) -> Decimal | None:
    """Return the number, or None if the value is no quantity."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or len(str(value)) > _MAX_LENGTH:
        return None
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        return None
    number, suffix, exponent = Decimal(match[1]), match[2], match[3]
    if exponent is not None:
        return number.scaleb(int(exponent))
    if suffix is None:
        return number
    return number.scaleb(_DECIMAL[suffix]) if suffix in _DECIMAL else number * (1 << _BINARY[suffix])


def format_quantity(number: Decimal) -> str:
    """Return the number as a quantity: with a binary suffix for whole mebibytes, `m` for fractions, else plain."""
    if number != number.to_integral_value():
        return f"{(number * 1000).to_integral_value()}m"
    whole = int(number)
    for suffix in ("Gi", "Mi"):
        if whole and whole % (1 << _BINARY[suffix]) == 0:
            return f"{whole >> _BINARY[suffix]}{suffix}"
    return str(whole)

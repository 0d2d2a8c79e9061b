"""Durations as people write them (`30s`, `5m`, `1h30m`), for settings and for the command's flags.

A number without a unit is refused: Spark reads `30` as milliseconds, systemd as seconds.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

import durationpy

__all__ = ["LONGEST", "format_duration", "parse_duration", "parse_grace"]

LONGEST: Final = timedelta(days=365)
"""Longer than any fleet runs, and far below a timer's limit."""

_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
"""durationpy's units, but no months, no years, nothing below a millisecond, and no sign."""

_NUMBER: Final = re.compile(r"[+-]?\d+(?:\.\d+)?")

_HOW: Final = 'write numbers with units (ms, s, m, h, d), such as "30s", "5m" or "1h30m"'


def parse_duration(value: object) -> timedelta:
    """Return a positive duration of at most `LONGEST`, from text or from a timedelta.

    Raises:
        ValueError: with what is allowed, as the end of a sentence.
    """
    duration = _parse(value)
    if duration <= timedelta():
        raise ValueError("must be longer than 0s")
    return duration


def parse_grace(value: object) -> timedelta:
    """Return how long something has to end: as `parse_duration`, or zero in any unit, which means not at all.

    Raises:
        ValueError: with what is allowed, as the end of a sentence.
    """
    duration = _parse(value)
    if duration < timedelta():
        raise ValueError("must not be negative")
    return duration


def _parse(value: object) -> timedelta:
    match value:
        case timedelta():
            duration = value
        case str() if _DURATION.fullmatch(value.strip()):
            try:
                duration = durationpy.from_str(value.strip())
            except durationpy.DurationError:
                duration = timedelta.max
        case str() if not _NUMBER.fullmatch(value.strip()):
            raise ValueError(f"is not a duration: {_HOW}")
        case _:
            raise ValueError(f"has no unit: {_HOW}")
    if duration > LONGEST:
        raise ValueError(f"must be at most {LONGEST.days}d")
    return duration


def format_duration(duration: timedelta) -> str:
    """Return the shortest text that `parse_grace` reads as this duration: `90s`, not `1m30s`; `5m`, not `300s`."""
    seconds = duration.total_seconds()
    if not seconds:
        return "0s"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds % size == 0:
            return f"{seconds // size:.0f}{unit}"
    return str(durationpy.to_str(duration))

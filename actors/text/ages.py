"""`age`: a duration as kubectl shows it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["age"]


def age(duration: timedelta) -> str:
    """Return a duration in its one or two largest useful units, as `duration.HumanDuration` of apimachinery.

    A negative one, as of clocks that differ, is `0s`.
    """
    seconds = max(0, int(duration.total_seconds()))
    minutes, hours, days, years = seconds // 60, seconds // 3600, seconds // 86400, seconds // (365 * 86400)
    if minutes < 2:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if years < 2:
        return f"{days}d"
    return _two(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"

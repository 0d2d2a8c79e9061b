"""Checks of what a driver sends: its mistake must never crash the Backend. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from actors.errors import Refused
from actors.pods.pod import DEFAULT_PROFILE

__all__ = ["checked_ids", "checked_totals"]


def checked_totals(totals: object, profiles: Collection[str]) -> dict[str, int]:
    """Return the target per profile; an int means the default profile.

    Raises:
        Refused: a number is none of executors, or a profile does not exist.
    """
    given = dict(totals) if isinstance(totals, Mapping) else {DEFAULT_PROFILE: totals}
    checked: dict[str, int] = {}
    for profile, total in given.items():
        if profile not in profiles:
            raise Refused(f"there is no profile {profile!r}; there are {', '.join(map(repr, profiles))}")
        if isinstance(total, bool) or not isinstance(total, int) or total < 0:
            raise Refused(f"a target is a whole number from 0, not {total!r}")
        checked[profile] = total
    return checked


def checked_ids(executor_ids: object) -> tuple[int, ...]:
    """Return the executor ids, each once.

    Raises:
        Refused: they are no ids.
    """
    if not isinstance(executor_ids, Collection) or not all(isinstance(i, int) for i in executor_ids):
        raise Refused(f"executors are named by a tuple of ids, not {executor_ids!r}")
    return tuple(dict.fromkeys(executor_ids))

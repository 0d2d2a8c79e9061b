"""What a driver hands to its Backend, checked: a driver's mistake must never become the end of the Backend."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from actors.errors import Refused
from actors.pods.pod import DEFAULT_PROFILE

__all__ = ["checked_ids", "checked_totals"]


def checked_totals(totals: object, profiles: Collection[str]) -> dict[str, int]:
    """The wanted number of executors per profile; an int means the default profile.

    Raises:
        Refused: this is no number of executors, or there is no such profile.
    """
    wanted = dict(totals) if isinstance(totals, Mapping) else {DEFAULT_PROFILE: totals}
    checked: dict[str, int] = {}
    for profile, total in wanted.items():
        if profile not in profiles:
            raise Refused(f"there is no profile {profile!r}; there are {', '.join(map(repr, profiles))}")
        if isinstance(total, bool) or not isinstance(total, int) or total < 0:
            raise Refused(f"a target is a whole number from 0, not {total!r}")
        checked[profile] = total
    return checked


def checked_ids(executor_ids: object) -> tuple[int, ...]:
    """Executor ids, each once.

    Raises:
        Refused: these are none.
    """
    if not isinstance(executor_ids, Collection) or not all(isinstance(i, int) for i in executor_ids):
        raise Refused(f"executors are named by a tuple of ids, not {executor_ids!r}")
    return tuple(dict.fromkeys(executor_ids))

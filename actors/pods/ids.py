"""Executor ids: which texts are ids, from which ids new ones may be counted on, and the pod names that contain them.

All that read an id use these functions: labels, names of pods and claims, and the annotation of the lease.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "INFIX",
    "LAST_BELIEVED_ID",
    "MAX_ID_DIGITS",
    "believed",
    "claim_name",
    "id_in_claim",
    "id_in_name",
    "id_text",
    "parse_executor_id",
    "pod_name",
]

MAX_ID_DIGITS: Final = 18
"""Executor ids of more digits are refused: 18 always fit a signed 64-bit integer."""

LAST_BELIEVED_ID: Final = 999 * 10**15
"""Ids above it are used but not counted on from, see `believed`: 10¹⁵ ids of at most 18 digits follow it, which no
fleet uses up."""

INFIX: Final = "-exec-"
"""Stands before the executor id in the name of an executor's pod."""

CLAIM_INFIX: Final = "-pvc-"
"""Stands after the pod's name in the name of a claim that outlives it."""


def parse_executor_id(text: str) -> int | None:
    """Return the executor id that `text` spells as we write ids: ASCII digits, no leading zero. None if it is no id."""
    is_id = text.isascii() and text.isdecimal() and text[0] != "0" and len(text) <= MAX_ID_DIGITS
    return int(text) if is_id else None


def believed(executor_id: int) -> int:
    """Return an id that somebody wrote into the cluster if new ids may follow it, else 0.

    After the largest possible id no further one would be an id.
    """
    return executor_id if executor_id <= LAST_BELIEVED_ID else 0


def pod_name(prefix: str, executor_id: int) -> str:
    """Return the name of an executor's pod."""
    return f"{prefix}{INFIX}{executor_id}"


def claim_name(prefix: str, executor_id: int, index: int) -> str:
    """Return the name of an executor's claim, by its index among the profile's `claims`."""
    return f"{pod_name(prefix, executor_id)}{CLAIM_INFIX}{index}"


def id_in_claim(name: str) -> int | None:
    """Return the id of the executor that a claim of such a name was made for, None if it is no such name."""
    pod, infix, index = name.rpartition(CLAIM_INFIX)
    return id_in_name(pod) if infix and index.isascii() and index.isdecimal() else None


def id_text(name: str) -> str:
    """Return what stands for the executor id in a name that `pod_name` makes, with whatever prefix: it may change."""
    return name.rpartition(INFIX)[2]


def id_in_name(name: str) -> int | None:
    """Return the executor id in such a name, None if it is no such name."""
    _, infix, text = name.rpartition(INFIX)
    return parse_executor_id(text) if infix else None

"""A fleet as a line, for logs and prompts, and as a table, for notebooks. From what is known here: nobody is asked."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Final

from actors.messages import ExecutorState
from actors.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.fleet.door import Door

__all__ = ["as_html", "as_line"]

LONGEST_CAUSE: Final = 200
"""Characters of why something is wrong; `status()` has all of it."""

COLUMNS: Final = ("profile", "target", "running", "pending", "terminating", "registered", "blocked")

RUNNING, PENDING, TERMINATING = ExecutorState.RUNNING, ExecutorState.PENDING, ExecutorState.TERMINATING

UNKNOWN: Final = "?"
"""The target, until the Backend has answered."""


def as_line(kind: str, door: Door) -> str:
    """Return what `repr` says of a fleet."""
    profiles = door.state.view.profiles.values()
    target = sum(profile.target for profile in profiles) if profiles else UNKNOWN
    running = sum(door.state.view.running.values())
    parts = [f"target {target}", f"{running} running", *_wrong(door)]
    return f"<{kind} {door.app_id}: {', '.join(parts)}>"


def as_html(kind: str, door: Door) -> str:
    """Return a table with a row for each profile."""
    caption = escape(", ".join((f"{kind} {door.app_id}", *_life(door))))
    head = "".join(f"<th>{name}</th>" for name in COLUMNS)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in _rows(door))
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _rows(door: Door) -> Iterator[tuple[object, ...]]:
    view = door.state.view
    profiles, executors = view.profiles, view.executors().values()
    states = Counter((each.profile, each.state) for each in executors)
    for name in door.settings.profile_names:
        known = profiles.get(name)
        yield (
            name,
            UNKNOWN if known is None else known.target,
            *(states[name, state] for state in (RUNNING, PENDING, TERMINATING)),
            view.registered[name],
            one_line((known and known.blocked) or "", LONGEST_CAUSE),
        )


def _wrong(door: Door) -> Iterator[str]:
    for name, profile in sorted(door.state.view.profiles.items()):
        if profile.blocked is not None and not door.state.is_over:
            yield f"{name!r} is blocked: {one_line(profile.blocked, LONGEST_CAUSE)}"
    yield from _life(door)


def _life(door: Door) -> Iterator[str]:
    state, status = door.state, door.state.view.status
    if status is not None and status.failed is not None:
        yield f"failed: {one_line(status.failed, LONGEST_CAUSE)}"
    if state.is_over:
        yield "ended" if state.failure is None else f"ended: {one_line(str(state.failure), LONGEST_CAUSE)}"
    elif state.started is None:
        yield "not started"

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

UNKNOWN: Final = "?"
"""The target, until the Backend has answered."""


def as_line(kind: str, door: Door) -> str:
    """Return what `repr` says of a fleet."""
    targets = door.view.targets
    target = sum(targets.values()) if targets else UNKNOWN
    running = sum(door.view.running.values())
    parts = [f"target {target}", f"{running} running", *_wrong(door)]
    return f"<{kind} {door.app_id}: {', '.join(parts)}>"


def as_html(kind: str, door: Door) -> str:
    """Return a table with a row for each profile."""
    caption = escape(", ".join((f"{kind} {door.app_id}", *_life(door))))
    head = "".join(f"<th>{name}</th>" for name in COLUMNS)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in _rows(door))
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _rows(door: Door) -> Iterator[tuple[object, ...]]:
    executors = door.view.executors().values()
    states = Counter((each.profile, each.state) for each in executors)
    registered = Counter(each.profile for each in executors if each.registered)
    blocked = door.view.blocked.copy()
    for name in door.settings.profile_names:
        yield (
            name,
            door.view.targets.get(name, UNKNOWN),
            *(states[name, state] for state in (ExecutorState.RUNNING, ExecutorState.PENDING)),
            states[name, ExecutorState.TERMINATING],
            registered[name],
            one_line(blocked[name].cause, LONGEST_CAUSE) if name in blocked else "",
        )


def _wrong(door: Door) -> Iterator[str]:
    blocked = sorted(door.view.blocked.copy().items())
    for name, block in blocked:
        yield f"{name!r} is blocked: {one_line(block.cause, LONGEST_CAUSE)}"
    yield from _life(door)


def _life(door: Door) -> Iterator[str]:
    view = door.view
    if view.failed is not None:
        yield f"failed: {one_line(view.failed, LONGEST_CAUSE)}"
    if view.is_over:
        yield "ended" if view.failure is None else f"ended: {one_line(str(view.failure), LONGEST_CAUSE)}"
    elif view.started is None:
        yield "not started"

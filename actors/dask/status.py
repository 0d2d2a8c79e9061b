"""The fleet in a notebook: a table with one row a worker group. Pure."""

from __future__ import annotations

import html
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from actors.messages import Executor, ProfileStatus

__all__ = ["fleet_table"]

_HEAD = ("group", "wanted", "connected", "pods", "")


def fleet_table(
    wanted: Mapping[str, int],
    executors: Iterable[Executor],
    connected: Collection[int],
    profiles: Mapping[str, ProfileStatus],
) -> str:
    """Return the table as HTML: how many workers are wanted and connected, what their pods do, and what blocks them."""
    states: dict[str, Counter[str]] = {group: Counter() for group in wanted}
    here: Counter[str] = Counter()
    stuck: dict[str, str] = {}
    for each in executors:
        if each.profile not in states:
            continue
        states[each.profile][str(each.state)] += 1
        here[each.profile] += each.id in connected
        if each.reason:
            stuck[each.profile] = f"executor {each.id}: {each.reason}"
    rows = "".join(
        _row(
            (
                group,
                str(number),
                str(here[group]),
                ", ".join(f"{count} {state}" for state, count in sorted(states[group].items())) or "none",
                (group in profiles and profiles[group].blocked) or stuck.get(group, ""),
            ),
            "td",
        )
        for group, number in wanted.items()
    )
    return f"<table>{_row(_HEAD, 'th')}{rows}</table>"


def _row(cells: Iterable[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

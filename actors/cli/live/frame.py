"""`render`: the lines of the screen, for any size. Pure.

What names an executor never gives way to what is said of it: ID, POD, STATE and FOR have their places first, then
profile, node, restarts and IP where there is room, and a reason gets what is left, or lines of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from actors.cli.live.view import HELP
from actors.cli.tally import counted
from actors.errors import needs_extra

with needs_extra("cli", "the command"):
    from rich.text import Text
from actors.text import age

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from actors.cli.live.cells import Shown
    from actors.cli.live.fleet import LiveFleet, News, Row
    from actors.cli.live.view import View

__all__ = ["render", "summary"]

COLOURS: Final = {
    "pending": "yellow",
    "running": "green",
    "terminating": "magenta",
    "stuck": "bold red",
    "removed": "red",
    "blocked": "bold red",
    "failed": "bold red",
    "stopping": "bold",
    "remark": "bold",
    "warning": "yellow",
}
ALARM: Final = "bold red"

NARROW: Final = 60
"""Below so many columns, words are short and gaps are one space."""

BESIDE: Final = 100
"""From so many columns on, a reason stands beside its executor; below, on lines of its own."""

REASON_WIDTH: Final = 34
"""Columns that a reason beside its executor has at least."""

POD_WIDTH: Final = 12
NODE_WIDTH: Final = 12
"""Columns that the name of a pod, and of a node, has at least."""

FEWEST_NEWS: Final = 4
"""Lines that the latest events have, however many executors there are."""

_Cell = tuple[str, int, bool]
"""A text, its width, and whether it stands at the right."""


def render(
    fleet: LiveFleet, view: View, *, width: int, height: int, now: datetime, has_keys: bool = False
) -> list[Text]:
    """Return the lines of the screen: at most `height`, each at most `width` cells wide."""
    lines = _lines(fleet, view, width, height, now, has_keys=has_keys)[:height]
    for line in lines:
        line.truncate(width, overflow="crop")  # what did not give way is wider than the terminal
    return lines


def _lines(fleet: LiveFleet, view: View, width: int, height: int, now: datetime, *, has_keys: bool) -> list[Text]:
    top = [*_head(fleet, width, now), *_profiles(fleet, width, height), *_alarms(fleet, width, height, now)]
    if fleet.tally.lost:
        text = f"lost: {counted(fleet.tally.lost)}; replaced: {fleet.tally.replaced}"
        top.append(Text(fleet.shown.fit(text, width), style=COLOURS["removed"]))
    if view.help:
        return [*top, Text(), *(Text(fleet.shown.fit(fleet.shown(line), width)) for line in HELP)]
    bottom = [_footer(fleet, view, width)] if has_keys or view.filter else []
    left = max(height - len(top) - len(bottom), 1)
    table = _table(fleet, view, width, left - min(FEWEST_NEWS, left // 3), now)
    news = _news(fleet, width, left - len(table))
    return [*top, *table, *([Text()] * (left - len(table) - len(news))), *news, *bottom]


def summary(fleet: LiveFleet, width: int, now: datetime) -> list[Text]:
    """Return what stays on the terminal: failures and warnings, what still blocks, and what the run came to."""
    shown, kept = fleet.shown, fleet.kept
    lines = [
        Text(line, style=COLOURS.get(news.kind, "")) for news in kept for line in _whole(shown, _said(news), width)
    ]
    for alarm in fleet.alarms(now):
        if fleet.failed is None:
            lines += [Text(line, style=ALARM) for line in _whole(shown, alarm.text, width)]
    ran = f" after {age(now - fleet.began)}" if fleet.began is not None else ""
    why = (fleet.over.reason if fleet.over is not None else None) or "not stopped"
    title = "not started" if fleet.began is None else fleet.title
    text = [f"{title}: {shown(why)}{ran}", str(fleet.tally)]
    if fleet.over is not None:
        left = fleet.over.details.get("left_behind")
        names = ", ".join(left) if isinstance(left, tuple) else ""
        text.append(f"pods that may be left behind: {shown(names)}" if names else "no pod is left behind")
    return [*lines, *(Text(piece) for line in text for piece in _whole(shown, line, width))]


def _whole(shown: Shown, text: str, width: int) -> list[str]:
    return shown.wrap(text, max(width, 1), 1_000)


# ── above the table ──────────────────────────────────────────────────────────────────────────────────────────────


def _head(fleet: LiveFleet, width: int, now: datetime) -> list[Text]:
    lasted = f"  up {age(now - fleet.began)}" if fleet.began is not None else ""
    state = f"  STOPPING: {fleet.shown(fleet.tally.stopping)}" if fleet.tally.stopping is not None else ""
    room = width - len(lasted) - len(state)
    title = fleet.shown.fit(fleet.title, max(room, width // 3)).rstrip()
    head = Text(fleet.shown.fit(f"{title}{lasted}{state}", width), style="bold")
    return [head, *(Text(fleet.shown.fit(hint, width), style="dim") for hint in fleet.hints)]


_TARGET, _REQUESTED, _RUNNING, _PENDING, _TERMINATING, _STUCK, _LOST = range(7)
_COUNTS: Final = (
    ("target", _TARGET),
    ("requested", _REQUESTED),
    ("running", _RUNNING),
    ("pending", _PENDING),
    ("terminating", _TERMINATING),
    ("stuck", _STUCK),
    ("lost", _LOST),
)
"""The counts of a profile, in the order of `LiveFleet.profiles`."""

_SHORT: Final = tuple(zip(("target", "req", "run", "pend", "term", "stuck", "lost"), range(7), strict=True))
_SHORTER: Final = (
    ("want", _TARGET),
    ("run", _RUNNING),
    ("pend", _PENDING),
    ("term", _TERMINATING),
    ("stuck", _STUCK),
    ("lost", _LOST),
)


def _profiles(fleet: LiveFleet, width: int, height: int) -> list[Text]:
    """Return the counts of each profile; of many profiles first those that lack executors."""
    profiles = list(fleet.profiles())
    most = max(1, height // 4)
    if len(profiles) > most:
        profiles = sorted(profiles, key=lambda each: each[1][_RUNNING] - each[1][_TARGET])
    named = max((len(name) for name, _ in profiles), default=0)
    gap = " " if width < NARROW else "  "
    for words in (_COUNTS, _SHORT, _SHORTER):
        widths = [max([len(word), *(len(str(counts[index])) for _, counts in profiles)]) for word, index in words]
        first = max(7, min(named, width - sum(widths) - len(gap) * len(widths)))
        if min(named, 16) + sum(widths) + len(gap) * len(widths) <= width:
            break
    line = fleet.shown.fit("PROFILE", first) + "".join(
        gap + fleet.shown.fit(word.upper(), size, right=True) for (word, _), size in zip(words, widths, strict=True)
    )
    lines = [Text(fleet.shown.fit(line, width), style="dim")]
    for name, counts in profiles[:most]:
        text = Text(fleet.shown.fit(name, first))
        for (_, index), size in zip(words, widths, strict=True):
            style = _COUNT_STYLES.get(index, "") if counts[index] else "dim"
            text.append(gap).append(fleet.shown.fit(str(counts[index]), size, right=True), style=style)
        lines.append(text)
    if len(profiles) > most:
        lines.append(Text(fleet.shown.fit(f"and {len(profiles) - most} more profiles", width), style="dim"))
    return lines


_COUNT_STYLES: Final = {
    _RUNNING: "green",
    _PENDING: "yellow",
    _TERMINATING: "magenta",
    _STUCK: "bold red",
    _LOST: "red",
}


def _alarms(fleet: LiveFleet, width: int, height: int, now: datetime) -> list[Text]:
    """Return what stands in the way, each cause whole as far as there is room, and its advice."""
    most = max(2, height // 3)
    lines: list[Text] = []
    for alarm in fleet.alarms(now):
        advice = fleet.shown.wrap(f"  -> {alarm.advice}", width, 2) if alarm.advice else []
        room = most - len(lines) - len(advice)
        if room < 1:
            lines.append(Text(fleet.shown.fit("more is blocked; widen the terminal", width), style=ALARM))
            break
        lines += [Text(line, style=ALARM) for line in fleet.shown.wrap(alarm.text, width, room)]
        lines += [Text(line, style="bold yellow") for line in advice]
    return lines


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────


class _Column(NamedTuple):
    title: str
    width: int
    cell: Callable[[Row], str]
    right: bool = False
    tail: bool = False


class _Layout(NamedTuple):
    """How the table uses the width."""

    width: int
    gap: str
    columns: Sequence[_Column]
    beside: int
    """The width of the reason beside its executor; 0 if it has lines of its own."""


def _layout(fleet: LiveFleet, rows: Sequence[Row], width: int, now: datetime) -> _Layout:
    """Return the columns that fit."""
    gap = 1 if width < NARROW else 2
    first = _Column(
        "ID", max(2, _widest(str(row.executor_id) for row in rows)), lambda row: str(row.executor_id), right=True
    )
    state = _Column("STATE", 11, lambda row: row.state)
    since = _Column("FOR", 5, lambda row: age(now - row.since), right=True)
    reason = REASON_WIDTH + gap if width >= BESIDE else 0
    room = width - reason - sum(column.width + gap for column in (first, state, since)) + gap
    pod = _Column("POD", min(_widest(row.pod for row in rows), room - gap, 40), lambda row: row.pod, tail=True)
    columns = [first, state, since]
    if pod.width >= min(POD_WIDTH, _widest(row.pod for row in rows)):
        columns.insert(1, pod)
        room -= pod.width + gap
    several = len({name for name, _ in fleet.profiles()}) > 1
    nodes = min(_widest(row.node for row in rows), NODE_WIDTH)
    for title, least, most, cell in (
        ("PROFILE", 8, 16 if several else 0, lambda row: row.profile),
        ("RESTARTS", 8 + gap + nodes, 8, lambda row: str(row.restarts)),
        ("NODE", nodes, 40, lambda row: row.node),
        ("IP", 8 + (REASON_WIDTH if reason else 0), 39, lambda row: row.ip),  # a reason tells more
    ):
        size = min(most, room - gap, max(_widest(cell(row) for row in rows), len(title)))
        if most and min(least, _widest(cell(row) for row in rows)) <= size and least + gap <= room:
            columns.append(_Column(title, size, cell, right=title == "RESTARTS"))
            room -= size + gap
    return _Layout(width, " " * gap, columns, REASON_WIDTH + max(room, 0) if reason else 0)


def _widest(texts: Iterable[str]) -> int:
    return max((len(text) for text in texts), default=0)


def _table(fleet: LiveFleet, view: View, width: int, room: int, now: datetime) -> list[Text]:
    """Return the header, as many executors as fit, and how many more there are, on `room` lines."""
    rows = view.rows(fleet.rows.values())
    layout = _layout(fleet, rows, width, now)
    titles = [fleet.shown.fit(column.title, column.width, right=column.right) for column in layout.columns]
    header = layout.gap.join([*titles, "REASON"] if layout.beside else titles)
    head = Text(fleet.shown.fit(header, width), style="dim")
    body: list[Text] = []
    room = max(room - 1, 1)
    first, shown = view.scroll(len(rows), _that_fit(fleet.shown, reversed(rows), layout, room - 1)), 0
    for row in rows[first:]:
        lines = _row(fleet.shown, row, layout)
        if len(body) + len(lines) + (first + shown + 1 < len(rows)) > room and shown:
            break
        body += lines
        shown += 1
    if len(rows) > shown or view.filter:
        of = f"{first + 1} to {first + shown}" if shown else "none"
        text = f"{of} of {len(rows)} executors" + (f", of {len(fleet.rows)} in all" if view.filter else "")
        body = [*body[: room - 1], Text(fleet.shown.fit(text, width), style="dim")]
    return [head, *body]


def _that_fit(shown: Shown, rows: Iterable[Row], layout: _Layout, room: int) -> int:
    """Return how many of these rows fit."""
    count = used = 0
    for row in rows:
        used += len(_row(shown, row, layout))
        if used > room:
            break
        count += 1
    return count


def _row(shown: Shown, row: Row, layout: _Layout) -> list[Text]:
    text, width = Text(), layout.width
    for index, (title, size, cell, right, tail) in enumerate(layout.columns):
        style = COLOURS.get(row.state, "") if title == "STATE" else ""
        text.append(layout.gap if index else "").append(shown.fit(cell(row), size, right=right, tail=tail), style=style)
    if layout.beside:
        text.append(layout.gap + shown.fit(row.reason, layout.beside))
    if layout.beside or not row.reason:
        return [text]
    indent = "  "
    said = shown.wrap(row.reason, width - len(indent), 2)
    return [text, *(Text(indent + line, style="dim") for line in said)]


# ── below the table ──────────────────────────────────────────────────────────────────────────────────────────────


def _said(news: News) -> str:
    return news.text if news.times == 1 else f"{news.text} ({news.times} times)"


def _news(fleet: LiveFleet, width: int, most: int) -> list[Text]:
    latest = list(fleet.news)[-most:] if most > 0 else []
    lines = [(" ".join(_said(news).split()) if width < NARROW else _said(news), news.kind) for news in latest]
    return [Text(fleet.shown.fit(line, width), style=COLOURS.get(kind, "")) for line, kind in lines]


def _footer(fleet: LiveFleet, view: View, width: int) -> Text:
    order = f"{view.order}{' reversed' if view.reverse else ''}"
    if view.asking:
        what = "stop the fleet and delete its executors"
        if fleet.stands_by:
            what = "stop this standby driver, and leave the executors to the other one"
        text = f"{what}? y, or any other key to go on"
    elif view.typing:
        text = f"/{view.filter}_   Enter keeps this filter, Esc clears it"
    else:
        filtered = f"/ filter: {view.filter}" if view.filter else "/ filter"
        text = f"s sort: {order}  {filtered}  ? help  q stop"
    return Text(fleet.shown.fit(fleet.shown(text), width), style="reverse")

"""The page without JavaScript: what is known, as plain HTML tables. Pure. Every text is escaped."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from actors.page.documents import Event, Executors, Status, Timestamp

__all__ = ["MOST_ROWS", "plain_page"]

MOST_ROWS: Final = 500
"""Rows of a table: the page is sent to browsers that show something better, too. The API has all."""

_PROFILE: Final = (
    "profile", "target", "requested", "pending", "running", "terminating", "retiring", "registered", "start_failures",
    "blocked",
)  # fmt: skip
_EXECUTOR: Final = ("id", "profile", "state", "since", "pod", "node", "ip", "restarts", "why")
_ENDED: Final = ("id", "profile", "ended_at", "loss", "exit_code", "caused_by_app", "pod", "node", "why")
_EVENT: Final = ("time", "event", "id", "profile", "text")
_TIMES: Final = frozenset({"since", "ended_at", "time"})


def plain_page(status: Status, executors: Executors, events: Sequence[Event]) -> str:
    """Return the tables as a section of HTML."""
    profiles = ({"profile": name, **asdict(profile)} for name, profile in status.profiles.items())
    living = (row.notes | asdict(row) for row in executors.executors[:MOST_ROWS])
    parts = [
        f"<p>Fleet {escape(status.app_id)}: {escape(_summary(status))}. <a href=''>Load again</a>.</p>",
        _table("Profiles", _PROFILE, profiles),
        _table(f"Executors ({len(executors.executors)})", (*_EXECUTOR, *status.columns), living),
        _table(f"Ended ({len(executors.ended)})", _ENDED, map(asdict, reversed(executors.ended))),
        _table(f"Events ({len(events)})", _EVENT, map(asdict, reversed(events))),
    ]
    if len(executors.executors) > MOST_ROWS:
        parts.insert(3, f"<p>These are the first {MOST_ROWS} executors. api/v1/executors has all.</p>")
    return "\n".join(('<section id="plain">', *parts, "</section>"))


def _summary(status: Status) -> str:
    if status.failed:
        return f"failed: {status.failed}"
    if status.stopping:
        return "it stops"
    if not status.started:
        return "it starts"
    words = ["started"]
    if not status.may_write:
        words.append("another driver holds the lease")
    if status.on_hold:
        words.append("on hold")
    words += [f"{name} fails: {source.error}" for name, source in status.sources.items() if source.error]
    return ", ".join(words)


def _table(title: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    head = "".join(f'<th scope="col">{escape(name.replace("_", " "))}</th>' for name in columns)
    lines = ("<tr>" + "".join(f"<td>{_cell(name, row.get(name))}</td>" for name in columns) + "</tr>" for row in rows)
    start = f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>"
    return "\n".join((start, *lines, "</tbody></table>"))


def _cell(name: str, value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float() | int() if name in _TIMES:
            return escape(_time(value))
        case _:
            return escape(str(value))


def _time(seconds: Timestamp) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M:%S}"

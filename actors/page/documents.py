"""The JSON of the page, version 1, as types: what is sent is made of them, and the docs' schema follows from them.

Fields may be added, but never removed or changed.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

from actors.settings.reference import attribute_docstrings
from actors.text import one_line

__all__ = [
    "STATES",
    "VERSION",
    "Acted",
    "Change",
    "Event",
    "Events",
    "Executor",
    "Executors",
    "Held",
    "Lane",
    "Problem",
    "Profile",
    "Reset",
    "Source",
    "StateName",
    "Status",
    "Timeline",
    "Timestamp",
    "encode",
    "line_of",
    "schema",
]

VERSION: Final = 1

Timestamp: TypeAlias = float
"""Seconds since the epoch."""

StateName: TypeAlias = Literal["requested", "pending", "stuck", "running", "terminating", "ended"]

STATES: Final[tuple[StateName, ...]] = ("requested", "pending", "stuck", "running", "terminating", "ended")
"""The states of an executor: those of `ExecutorState`, and `stuck`: it is pending, and does not get further."""


class _Document(msgspec.Struct, frozen=True):
    """An object of JSON."""


class Source(_Document, frozen=True):
    """How fresh one source of what is known is: the watch or the poll."""

    synced: bool
    """It has had a full sync, and its last request did not fail."""
    since_full_sync: float | None
    """The age of the last full sync in seconds, as of the status."""
    since_heard: float | None
    """The age of the last page, event or bookmark in seconds, as of the status."""
    error: str | None


class Profile(_Document, frozen=True):
    """One profile, in numbers of executors."""

    target: int
    requested: int
    pending: int
    running: int
    terminating: int
    retiring: int
    registered: int
    blocked: str | None
    """Why creation is blocked."""
    blocked_by: str | None
    blocked_since: Timestamp | None
    start_failures: int
    backoff_until: Timestamp | None
    more_memory: int
    losses: dict[str, int]
    """How many ended in the last hour, by kind of loss."""


class Held(_Document, frozen=True):
    """A pod that finalizers hold."""

    id: int
    pod: str
    finalizers: list[str]
    since: Timestamp


class Status(_Document, frozen=True):
    """The fleet: `/api/v1/status`, and the event `status` of the stream."""

    version: int
    time: Timestamp
    """As of when it is."""
    seq: int
    app_id: str
    namespace: str | None
    """None before the Backend has answered, as everything that it knows."""
    started: bool
    failed: str | None
    """Why the Backend has ended, or why no executor is created until a target is set."""
    stopping: bool
    may_write: bool
    lease_held: bool
    on_hold: bool
    actions: bool
    """Whoever has the token may act."""
    sources: dict[str, Source]
    profiles: dict[str, Profile]
    held: list[Held]
    columns: list[str]
    """The names of the driver's own columns."""


class Executor(_Document, frozen=True):
    """One executor, living or ended."""

    id: int
    profile: str
    state: StateName
    since: Timestamp
    """When it entered this state."""
    requested_at: Timestamp
    """When it was requested, or first observed."""
    running_at: Timestamp | None
    ended_at: Timestamp | None
    registered: bool
    retiring: bool
    pod: str | None
    node: str | None
    ip: str | None
    restarts: int
    why: str | None
    """Why it is stuck or terminating, or how it ended."""
    loss: str | None
    """The kind of its loss."""
    exit_code: int | None
    caused_by_app: bool | None
    """Whether its loss counts against the application."""
    notes: dict[str, str]
    """The driver's own columns."""


class Event(_Document, frozen=True):
    """One message to the driver."""

    seq: int
    time: Timestamp
    event: str
    """As in the command's JSON: started, pending, running, terminating, removed, stuck, blocked, unblocked, failed or
    stopped."""
    id: int | None
    profile: str | None
    text: str


class Executors(_Document, frozen=True):
    """`/api/v1/executors`."""

    version: int
    seq: int
    executors: list[Executor]
    """The living ones, by id."""
    ended: list[Executor]
    """The last 200 that ended, the newest last."""


class Events(_Document, frozen=True):
    """`/api/v1/events`: the last 500, the newest last."""

    version: int
    seq: int
    events: list[Event]


Lane: TypeAlias = tuple[int, int, int, list[tuple[int, Timestamp]], Timestamp | None, str | None]
"""An executor on the timeline: its id, the indexes of its profile and node, each state's index and start, its end, and
the kind of its loss."""


class Timeline(_Document, frozen=True):
    """`/api/v1/timeline`: all living executors, and up to 10,000 ended ones."""

    version: int
    seq: int
    now: Timestamp
    lanes: list[Lane]
    profiles: list[str]
    nodes: list[str]
    states: tuple[StateName, ...]


class Change(_Document, frozen=True):
    """The event `change` of the stream: what changed since the last one."""

    seq: int
    """The last change that is in here: the next changes are those since this one."""
    executors: list[Executor]
    """Living ones that changed, as they are now."""
    ended: list[Executor]
    """Those that ended. Only the last 200 have all their words."""
    events: list[Event]


class Reset(_Document, frozen=True):
    """The event `reset` of the stream: the viewer is too far behind, and loads everything anew."""

    seq: int


class Acted(_Document, frozen=True):
    """The answer to an action."""

    ids: list[int]
    """The executors that will be ended or retire."""


class Problem(_Document, frozen=True):
    """The answer to a request that is refused."""

    error: str


ALL: Final = (Status, Executors, Events, Timeline, Change, Reset, Acted, Problem)


def line_of(text: str | None) -> str | None:
    """Return a text from outside as documents have it; None stays None."""
    return None if text is None else one_line(text)


def encode(document: _Document) -> bytes:
    """Return a document as JSON."""
    return msgspec.json.encode(document)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of all documents, each under `$defs`."""
    _, definitions = msgspec.json.schema_components(ALL, ref_template="#/$defs/{name}")
    for kind in (Source, Profile, Held, Executor, Event, *ALL):
        for name, text in attribute_docstrings(kind).items():
            definitions[kind.__name__]["properties"][name]["description"] = text
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The page of executor-pods, version 1",
        "$defs": dict(sorted(definitions.items())),
    }

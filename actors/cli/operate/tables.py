"""Fleets as text for people: columns as kubectl aligns them. Pure."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from actors.inspection.executors import ObservedState
from actors.pods.loss import in_short
from actors.text import LONGEST_LINE, age, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from actors.inspection.events import ObservedEvent
    from actors.inspection.executors import ObservedExecutor
    from actors.inspection.fleets import Counts, ObservedFleet

__all__ = ["UNKNOWN", "ago", "columns", "events_table", "executors_table", "list_table", "status_lines"]

UNKNOWN: Final = "?"
"""What nothing says."""
NONE: Final = "<none>"
"""What is not there, as kubectl writes it."""

_GAP: Final = 3
"""Spaces between columns, as kubectl has."""

_LONGEST_CELL: Final = 253
"""Characters of a cell that is not the last one: the longest name of an object."""

COUNTS: Final = ("WANTED", "RUNNING", "PENDING", "STUCK", "TERMINATING", "ENDED")


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table. Each cell is text on one line; an empty one is `<none>`, but in the last column."""
    table = [tuple(header), *(tuple(_cells(row)) for row in rows)]
    widths = [max(map(len, column)) + _GAP for column in zip(*table, strict=True)]
    for row in table:
        yield "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _cells(row: Sequence[str]) -> Iterator[str]:
    for cell in row[:-1]:
        yield one_line(cell, _LONGEST_CELL) or NONE
    yield one_line(row[-1], LONGEST_LINE)


def ago(moment: datetime | None, now: datetime) -> str:
    """Return how long ago it was, as kubectl's AGE."""
    return UNKNOWN if moment is None else age(now - moment)


def list_table(fleets: Iterable[ObservedFleet], *, namespaces: bool) -> Iterator[str]:
    """Yield a line for each profile of each fleet."""
    header = ("APP-ID", "PROFILE", "STATE", "HOLDER", "RENEWED", *COUNTS)
    rows = chain.from_iterable(map(_list_rows, fleets))
    if namespaces:
        return columns(("NAMESPACE", *header), rows)
    return columns(header, (row[1:] for row in rows))


def _list_rows(fleet: ObservedFleet) -> Iterator[tuple[str, ...]]:
    holder, renewed = holder_of(fleet)
    for profile, counts in fleet.counts.items() or ((NONE, None),):
        numbers = _numbers(counts) if counts is not None else ("0",) * len(COUNTS)
        yield fleet.namespace, fleet.app_id, profile, fleet.state, holder, renewed, *numbers


def holder_of(fleet: ObservedFleet) -> tuple[str, str]:
    """Return who holds the Lease, and how long ago it was renewed."""
    if fleet.lease is None:
        return (NONE, NONE) if "cannot be read" not in fleet.driver.why else (UNKNOWN, UNKNOWN)
    holder = fleet.lease.record.holder or NONE
    return holder, ago(fleet.lease.renewed_at, fleet.at)


def _numbers(counts: Counts) -> tuple[str, ...]:
    wanted = UNKNOWN if counts.wanted is None else str(counts.wanted)
    numbers = (counts.running, counts.pending, counts.stuck, counts.terminating, counts.ended)
    return wanted, *map(str, numbers)


def status_lines(fleet: ObservedFleet, *, wide: bool, room: int | None = None) -> Iterator[str]:
    """Yield what is known of one fleet. With `room`, at most so many executors, those that do not run first."""
    yield one_line(f"Fleet {fleet.app_id} in namespace {fleet.namespace}: {fleet.state}, {fleet.driver.why}")
    if fleet.on_hold:
        yield "on hold: its executors retire, and none is created until `resume`"
    if fleet.unreadable:
        yield f"{fleet.unreadable} pods cannot be read and are left out"
    yield ""
    yield from columns(("PROFILE", *COUNTS), ((name, *_numbers(counts)) for name, counts in fleet.counts.items()))
    yield ""
    shown = _chosen(fleet.executors, room)
    if shown:
        yield from executors_table(shown, fleet.at, wide=wide)
    if len(shown) < len(fleet.executors):
        yield f"... and {len(fleet.executors) - len(shown)} more"


def _chosen(executors: Sequence[ObservedExecutor], room: int | None) -> Sequence[ObservedExecutor]:
    if room is None or len(executors) <= room:
        return executors
    first = sorted(executors, key=lambda executor: executor.state is ObservedState.RUNNING)[:room]
    chosen = {executor.pod.uid for executor in first}
    return [executor for executor in executors if executor.pod.uid in chosen]


def executors_table(executors: Iterable[ObservedExecutor], now: datetime, *, wide: bool) -> Iterator[str]:
    """Yield a line for each executor."""
    header = ("ID", "PROFILE", "STATE", "FOR", "POD", "RESTARTS", "AGE", *(("IP", "NODE") if wide else ()), "WHY")
    return columns(header, (_executor_row(executor, now, wide=wide) for executor in executors))


def _executor_row(executor: ObservedExecutor, now: datetime, *, wide: bool) -> tuple[str, ...]:
    pod = executor.pod
    return (
        UNKNOWN if executor.id is None else str(executor.id),
        executor.profile,
        f"{executor.state}, retiring" if executor.retiring else executor.state,
        ago(executor.since, now),
        pod.name,
        str(executor.restarts),
        ago(executor.created_at, now),
        *((pod.ip or NONE, pod.node or NONE) if wide else ()),
        _why(executor, wide=wide),
    )


def _why(executor: ObservedExecutor, *, wide: bool) -> str:
    """Return the reason; of an end, its kind and, unless there is room for all, its exit code only."""
    loss = executor.loss
    if loss is None or wide:
        return in_short(executor.why or "")
    return loss.kind if loss.exit_code < 0 else f"{loss.kind}, exit code {loss.exit_code}"


def events_table(events: Iterable[ObservedEvent], now: datetime, *, objects: bool = True) -> Iterator[str]:
    """Yield a line for each Event, the newest last, as `kubectl get events` has them."""
    header = ("LAST SEEN", "TYPE", "REASON", *(("OBJECT",) if objects else ()), "MESSAGE")
    return columns(header, (_event_row(event, now, objects=objects) for event in events))


def _event_row(event: ObservedEvent, now: datetime, *, objects: bool) -> tuple[str, ...]:
    seen = ago(event.at, now)
    if event.count > 1:
        seen += f" (x{event.count} over {ago(event.since, now)})"
    return seen, event.type, event.reason, *((f"{event.kind.lower()}/{event.name}",) if objects else ()), event.message

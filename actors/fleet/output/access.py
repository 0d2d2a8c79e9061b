"""How a door reads its executors' logs: as steps, for both kinds of fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.errors import NotFound
from actors.fleet.output.lines import LineBuffer
from actors.fleet.output.logs import Log, LogRead, LogStream
from actors.fleet.stream import EventBuffer
from actors.fleet.waiting import Pause, next_of
from actors.messages import ExecutorState
from actors.pods.state import executor_container

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from actors.fleet.door import Door
    from actors.fleet.output.lines import LogLine
    from actors.fleet.waiting import Steps
    from actors.messages import ExecutorRunning

__all__ = ["follow", "next_line", "read_log"]

HAS_LOG: Final = frozenset({ExecutorState.RUNNING, ExecutorState.TERMINATING})
"""The states in which an executor's container has begun, or will at once."""


def read_log(door: Door, executor_id: int, tail: int | None, container: str | None) -> Steps[str]:
    """Return what an executor has printed.

    Raises:
        ValueError: an argument is not allowed, or there was no such executor.
        ApiError: there is no log.
    """
    door.check_alive()
    connect = door.log_client()
    log = _log_of(door, executor_id)
    read = LogRead(connect, log if container is None else log._replace(container=container), tail=_checked_tail(tail))
    read.start()
    try:
        yield Pause(lambda: read.is_done, read)
        return read.result()
    except NotFound:
        raise NotFound(
            f"executor {executor_id} has no log any more: its pod {log.pod} is gone; fleet.ended has the reason of its "
            "end, with its last words",
            status=404,
        ) from None
    finally:
        read.close()


def follow(
    door: Door, executors: int | Iterable[int] | None, profile: str | None, tail: int | None
) -> tuple[LogStream, LineBuffer]:
    """Begin to follow logs.

    Raises:
        ValueError: an argument is not allowed, or there is no such executor.
    """
    door.check_alive()
    connect = door.log_client()
    names = door.settings.profile_names
    if profile is not None and profile not in names:
        raise ValueError(f"profile = {profile!r}: there is no such profile; there are {', '.join(names)}")
    ids = None if executors is None else frozenset((executors,) if isinstance(executors, int) else executors)
    for executor_id in sorted(ids or ()):
        if executor_id not in door.executors():
            raise _unknown(door, executor_id)
    events, buffer = EventBuffer(door.plan.max_events), LineBuffer()
    door.state.add_reader(events)

    def log_of(event: ExecutorRunning) -> Log | None:
        if profile not in (None, event.profile):
            return None
        container = executor_container(event.pod, door.settings.pod_rules)
        return Log(event.executor_id, event.pod.name, container, event.profile)

    def running() -> dict[int, Log]:
        return {
            each.id: _log_of(door, each.id)
            for each in door.executors().values()
            if each.state in HAS_LOG and each.pod is not None and profile in (None, each.profile)
        }

    stream = LogStream(
        connect,
        events=events,
        running=running,
        log_of=log_of,
        buffer=buffer,
        ids=ids,
        tail=_checked_tail(tail),
    )
    stream.start()
    return stream, buffer


def next_line(door: Door, buffer: LineBuffer, limit: timedelta | None) -> Steps[LogLine | None]:
    """Return the next line; None at the end, or after `limit`.

    Raises:
        ExecutorPodsError: why no line can come, such as a missing right.
    """
    door.check()
    line, has_ended = yield from next_of(buffer, buffer, limit, door.system.clock)
    if line is None and has_ended and buffer.error is not None:
        raise buffer.error
    return line


def _log_of(door: Door, executor_id: int) -> Log:
    executor = door.executors().get(executor_id)
    if executor is None:
        executor = next((each for each in reversed(door.ended()) if each.id == executor_id), None)
    if executor is None:
        raise _unknown(door, executor_id)
    if executor.pod is None:
        raise NotFound(f"executor {executor_id} has no log: no pod of it was observed", status=404)
    return Log(executor_id, executor.pod, executor.container, executor.profile)


def _unknown(door: Door, executor_id: object) -> ValueError:
    alive = ", ".join(map(str, door.executors())) or "none"
    return ValueError(f"executor_id = {executor_id!r}: there is no such executor; alive are: {alive}")


def _checked_tail(tail: int | None) -> int | None:
    if tail is not None and (not isinstance(tail, int) or isinstance(tail, bool) or tail < 0):
        raise ValueError(f"tail = {tail!r}: must be a whole number of lines, or None for all")
    return tail
